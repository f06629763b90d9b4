// What the rest of the chain knows of a model: its parameters and its units. Pure data, without torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace intarsia::plan {

// How a parameter is filled when no file gives it. Normal numbers are keyed by (seed, init_key) and counted by the
// element's index in the logical tensor, so that any rank can fill any piece.
enum class Init { kNormal, kOnes, kZeros };

struct ParamSpec {
  std::string name;                 // the model file's name, for example "model.layers.0.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;  // logical shape, never padded
  int unit = 0;                     // index into ModelSpec::units
  Init init = Init::kNormal;
  double init_std = 0.02;
  bool frozen = false;                          // no gradient, no optimizer memory
  int uses = 1;                                 // times that one forward reads it (a tied embedding: 2)
  std::vector<std::string> tied_names = {};     // other names of the same tensor, for example "lm_head.weight"
  std::optional<int> tensor_parallel_dim = {};  // dim that tensor parallelism splits; absent: replicated

  std::int64_t numel() const;
  bool is_vector() const { return shape.size() <= 1; }  // the class that `no_decay_1d` spares from weight decay
  const std::string& init_key() const { return name; }
};

// A unit is what is gathered together: an embedding, a transformer block, a head.
struct UnitSpec {
  std::string name;
  std::vector<int> params;  // indices into ModelSpec::params, in layout order
};

struct ModelSpec {
  std::string family;  // "llama", ...
  std::vector<ParamSpec> params;
  std::vector<UnitSpec> units;  // in the order of the forward pass
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t max_positions = 0;

  std::int64_t numel() const;
  // Index of the parameter called `name` (tied names count), or nothing.
  std::optional<int> find(const std::string& name) const;
};

}  // namespace intarsia::plan
