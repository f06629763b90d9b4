// What the engine needs to know of anybody's torch::nn::Module.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/nn/module_unit.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::nn {

// A module inside of the root, as a wrap policy sees it; those inside of it have been decided.
struct WrapCandidate {
  const std::string& name;  // its path: "blocks.0"
  const torch::nn::Module& module;
  std::int64_t numel = 0;  // elements of its parameters that no unit inside of it takes
};

// Which modules become units of their own. Modules of the type Unit<M> always do; the parameters that nothing takes are
// the root unit's, which is whole during the whole forward.
struct WrapPolicy {
  std::function<bool(const WrapCandidate&)> takes;
  std::vector<std::string> names = {};  // that must exist
};
// Only modules that are Unit<M>.
WrapPolicy wrap_marked();
// Modules of one of these types, for example wrap_types<torch::nn::TransformerEncoderLayerImpl>().
template <typename... Modules>
WrapPolicy wrap_types() {
  return {.takes = [](const WrapCandidate& candidate) {
    return (... || (dynamic_cast<const Modules*>(&candidate.module) != nullptr));
  }};
}
// Modules with at least `numel` elements that no unit inside takes, innermost first; lists and dictionaries of modules,
// which have no forward, are left out. Source: FSDP's size_based_auto_wrap_policy.
WrapPolicy wrap_size(std::int64_t numel);
// The modules of these paths. inspect() refuses a path that does not exist.
WrapPolicy wrap_names(std::vector<std::string> names);

// How a parameter of the meta device is filled. Absent: the rule below.
struct InitValue {
  plan::Init init = plan::Init::kNormal;
  double std = 0.02;
};
using InitRule =
    std::function<std::optional<InitValue>(const std::string& name, const std::vector<std::int64_t>& shape)>;

struct InspectOptions {
  WrapPolicy policy = wrap_marked();
  // Without an answer: embeddings normal with deviation 1, other parameters of two and more dims normal with deviation
  // 1 / sqrt(3 fan_in) (the spread of torch's own uniform numbers), one-dimensional ones called "weight" 1, the rest 0.
  InitRule init = {};
};

struct Inspected {
  plan::ModelSpec model;                                       // unit 0 is the root
  std::vector<std::vector<at::Tensor>> leaves;                 // by parameter: see Parameters
  std::vector<torch::nn::Module*> units;                       // by unit: the module that it was made of
  std::vector<std::pair<std::string, at::Tensor>> registered;  // every name and its tensor, ties included
};

// Parameters in the order of registration, with their names, shapes, units and ties. Tied names are found by the shared
// tensor or storage; a parameter that modules of several units know belongs to the innermost unit that has them all.
// Frozen is what does not require gradients.
// Errors: kUsage, all at once: a parameter that is not of fp32, bf16 or fp16, not dense, on a device, computed from
// other tensors, or that shares a part of its memory with another one; a path of the policy that does not exist.
Inspected inspect(torch::nn::Module& module, const InspectOptions& options = {});

// Errors: kUsage, naming the parameter, when the module no longer has the tensors that were inspected (replace_module,
// a parameter or a part that was registered later).
void check_registered(const torch::nn::Module& module, const Inspected& inspected);

// The values that leaves have before they are wrapped; those on the meta device come from `otherwise`.
class ModuleWeights final : public plan::WeightSource {
 public:
  // `otherwise` must outlive this object.
  ModuleWeights(const Inspected& inspected, const plan::WeightSource& otherwise);
  void read(const plan::ParamSpec& param, plan::Range range, float* out) const override;

 private:
  std::map<std::string, at::Tensor> leaves_;  // by the parameter's first name
  const plan::WeightSource& otherwise_;
};

}  // namespace intarsia::nn
