// Adam and AdamW over the pieces of the flat buffers that this rank updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "intarsia/plan/run_plan.h"
#include "intarsia/shard/flat_state.h"

namespace intarsia::optim {

// Moments are fp32 and lie exactly over FlatState::updated. Threads: the engine's thread.
class AdamW {
 public:
  AdamW(const plan::RunPlan& plan, std::vector<shard::FlatState>& states);

  // One update: masters and moments from the gradients times `grad_scale`. `lr` is this update's rate. Purely local.
  void step(double lr, double grad_scale);

  struct Moments {
    at::Tensor first;  // [updated.size()] fp32; undefined for frozen buffers
    at::Tensor second;
  };
  std::vector<Moments>& moments() { return moments_; }
  // Applied updates so far: k of the bias correction.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  const plan::RunPlan& plan_;
  std::vector<shard::FlatState>& states_;
  std::vector<Moments> moments_;
  std::int64_t updates_ = 0;
};

}  // namespace intarsia::optim
