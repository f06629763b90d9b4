// What a peer's training checkpoint is written from. Pure data; cli's convert puts it together from a checkpoint of any
// format and the model's config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

struct PeerParam {
  std::string name;  // as the model has it
  std::vector<std::string> tied_names = {};
  std::vector<std::int64_t> shape = {};
  const LogicalTensor* weight = nullptr;                    // the master, where there is one
  std::map<std::string, const LogicalTensor*> states = {};  // by kind; empty: frozen, or no state is written
};

// A group of the peer's optimizer.
struct PeerGroup {
  std::vector<std::size_t> params = {};  // indices into PeerState::params, of trained ones, in the model's order
  double lr = 0;                         // of the next update
  double initial_lr = 0;                 // the schedule's base
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

// Invariant: a parameter is in one group when it has states, else in none.
struct PeerState {
  std::vector<PeerParam> params = {};
  std::vector<PeerGroup> groups = {};  // Adam's; empty: only weights are written
  bool decoupled_decay = true;         // AdamW, not Adam
  bool torch_adam = false;             // torch.optim's class, not DeepSpeed's own: its counter is a tensor
  std::int64_t step = 0;               // optimizer steps, skipped ones included
  std::int64_t updates = 0;
  std::int64_t samples = 0;
  std::optional<LossScaleRecord> loss_scale = {};
};

// Elements of fp32 that a checkpoint of `state` has, tied weights once.
std::int64_t num_elements(const PeerState& state);

}  // namespace intarsia::formats
