#include "intarsia/nn/inspect.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::nn {
namespace {

using torch::nn::Module;

std::string child_name(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : concat(parent, ".", name);
}

std::string describe(const at::Tensor& tensor) {
  return concat(c10::toString(tensor.scalar_type()), " on ", tensor.device(), ", ", tensor.layout());
}

void list_registered(const Module& module, const std::string& name,
                     std::vector<std::pair<std::string, at::Tensor>>& to) {
  for (const auto& item : module.named_parameters(false)) to.emplace_back(child_name(name, item.key()), item.value());
  for (const auto& child : module.named_children()) list_registered(*child.value(), child_name(name, child.key()), to);
}

class Inspector {
 public:
  Inspector(Module& root, const InspectOptions& options) : root_(root), options_(options) {
    result_.model.family = "module";
    result_.model.units.push_back({.name = "root", .params = {}});
    result_.units.push_back(&root);
    parents_.push_back(0);
  }

  Inspected run() {
    decide(root_, "");
    for (const std::string& name : options_.policy.names)
      if (!paths_.contains(name)) problem(concat("the module has no part called ", printable(name), " to be a unit"));
    walk(root_, "", 0);
    for (std::size_t param = 0; param < result_.leaves.size(); ++param) {
      plan::ParamSpec& spec = result_.model.params[param];
      spec.uses = static_cast<int>(result_.leaves[param].size());
      result_.model.units[static_cast<std::size_t>(spec.unit)].params.push_back(static_cast<int>(param));
    }
    check_memory();
    INTARSIA_CHECK(kUsage, problems_.empty(), "the module cannot be wrapped: ", join(problems_, "; "));
    return std::move(result_);
  }

 private:
  void problem(std::string text) { problems_.push_back(std::move(text)); }

  // Asks the policy about all modules, inner ones first. Returns the elements that are left for an outer unit.
  std::int64_t decide(const Module& module, const std::string& name) {
    paths_.insert(name);
    const bool first_visit = visited_.insert(&module).second;
    std::int64_t numel = 0;
    if (first_visit)
      for (const auto& item : module.named_parameters(false))
        if (counted_.insert(item.value().unsafeGetTensorImpl()).second) numel += item.value().numel();
    for (const auto& child : module.named_children()) numel += decide(*child.value(), child_name(name, child.key()));
    if (&module == &root_) return numel;
    const bool takes = dynamic_cast<const UnitSlot*>(&module) != nullptr ||
                       options_.policy.takes(WrapCandidate{.name = name, .module = module, .numel = numel});
    if (takes) taken_.emplace(&module, -1);
    return takes ? 0 : numel;
  }

  // Numbers the units and collects the parameters, in the order of registration.
  void walk(Module& module, const std::string& name, int outer) {
    int unit = outer;
    if (const auto taken = taken_.find(&module); taken != taken_.end()) {
      if (taken->second < 0) {
        taken->second = static_cast<int>(result_.units.size());
        result_.model.units.push_back({.name = name, .params = {}});
        result_.units.push_back(&module);
        parents_.push_back(outer);
      }
      unit = taken->second;
    }
    for (const auto& item : module.named_parameters(false))
      add(module, item.key(), child_name(name, item.key()), item.value(), unit);
    for (const auto& child : module.named_children()) walk(*child.value(), child_name(name, child.key()), unit);
  }

  void add(const Module& module, const std::string& key, const std::string& name, const at::Tensor& leaf, int unit) {
    result_.registered.emplace_back(name, leaf);
    if (const std::optional<int> known = find(leaf)) {
      plan::ParamSpec& spec = result_.model.params[static_cast<std::size_t>(*known)];
      std::vector<at::Tensor>& leaves = result_.leaves[static_cast<std::size_t>(*known)];
      if (by_tensor_.emplace(leaf.unsafeGetTensorImpl(), *known).second) leaves.push_back(leaf);
      if (spec.name != name) spec.tied_names.push_back(name);
      spec.frozen = spec.frozen && !leaf.requires_grad();
      spec.unit = common(spec.unit, unit);
      return;
    }
    const bool dtype =
        leaf.scalar_type() == at::kFloat || leaf.scalar_type() == at::kBFloat16 || leaf.scalar_type() == at::kHalf;
    if (leaf.layout() != at::kStrided || !dtype)
      return problem(concat("parameter ", name, " is ", describe(leaf),
                            "; dense fp32, bf16 or fp16 is needed (other tensors may be buffers)"));
    if (!leaf.is_leaf())
      return problem(
          concat("parameter ", name, " is computed from other tensors, so that it has no gradient of its own"));
    plan::ParamSpec spec{.name = name, .shape = leaf.sizes().vec(), .unit = unit, .frozen = !leaf.requires_grad()};
    const InitValue init = initial(module, key, spec);
    spec.init = init.init;
    spec.init_std = init.std;
    by_tensor_.emplace(leaf.unsafeGetTensorImpl(), static_cast<int>(result_.model.params.size()));
    if (spec.numel() > 0)
      by_storage_[leaf.storage().unsafeGetStorageImpl()].push_back(static_cast<int>(result_.model.params.size()));
    result_.model.params.push_back(std::move(spec));
    result_.leaves.push_back({leaf});
  }

  // The parameter that `leaf` is another name of.
  std::optional<int> find(const at::Tensor& leaf) const {
    if (const auto known = by_tensor_.find(leaf.unsafeGetTensorImpl()); known != by_tensor_.end()) return known->second;
    if (!leaf.has_storage() || leaf.numel() == 0) return std::nullopt;
    const auto same = by_storage_.find(leaf.storage().unsafeGetStorageImpl());
    if (same == by_storage_.end()) return std::nullopt;
    for (const int param : same->second) {
      const at::Tensor& other = result_.leaves[static_cast<std::size_t>(param)][0];
      if (other.storage_offset() == leaf.storage_offset() && other.sizes() == leaf.sizes() &&
          other.strides() == leaf.strides() && other.scalar_type() == leaf.scalar_type())
        return param;
    }
    return std::nullopt;
  }

  // The innermost unit around both.
  int common(int a, int b) const {
    std::set<int> around;
    for (int unit = a;; unit = parents_[static_cast<std::size_t>(unit)]) {
      around.insert(unit);
      if (unit == 0) break;
    }
    while (!around.contains(b)) b = parents_[static_cast<std::size_t>(b)];
    return b;
  }

  InitValue initial(const Module& module, const std::string& key, const plan::ParamSpec& spec) const {
    if (options_.init)
      if (const auto asked = options_.init(spec.name, spec.shape)) return *asked;
    if (spec.is_vector()) return {.init = key == "weight" ? plan::Init::kOnes : plan::Init::kZeros, .std = 0};
    if (dynamic_cast<const torch::nn::EmbeddingImpl*>(&module) != nullptr) return {.std = 1};
    const std::int64_t fan_in = spec.shape[0] > 0 ? spec.numel() / spec.shape[0] : 0;
    return {.std = fan_in > 0 ? 1 / std::sqrt(3.0 * static_cast<double>(fan_in)) : 0};
  }

  // Views into one memory are fine as long as no element belongs to two parameters.
  void check_memory() {
    for (const auto& [storage, params] : by_storage_) {
      std::set<std::int64_t> elements;
      std::size_t expected = 0;
      if (params.size() < 2) continue;
      for (const int param : params) {
        const at::Tensor& leaf = result_.leaves[static_cast<std::size_t>(param)][0];
        // Elements, not spans: interleaved views (columns of one matrix) are fine too.
        const at::Tensor places =
            at::arange(static_cast<std::int64_t>(storage->nbytes() / leaf.element_size()), at::kLong)
                .as_strided(leaf.sizes(), leaf.strides(), leaf.storage_offset())
                .contiguous();
        elements.insert(places.const_data_ptr<std::int64_t>(), places.const_data_ptr<std::int64_t>() + places.numel());
        expected += static_cast<std::size_t>(leaf.numel());
      }
      if (elements.size() == expected) continue;
      std::vector<std::string> names;
      for (const int param : params) names.push_back(result_.model.params[static_cast<std::size_t>(param)].name);
      problem(concat("parameters ", join(names), " share a part of their memory without being the same tensor"));
    }
  }

  Module& root_;
  const InspectOptions& options_;
  Inspected result_;
  std::vector<int> parents_;  // by unit: the unit around it
  std::set<std::string> paths_;
  std::set<const Module*> visited_;
  std::set<const void*> counted_;
  std::map<const Module*, int> taken_;  // the unit's index, -1 until it is numbered
  std::map<const void*, int> by_tensor_;
  std::map<c10::StorageImpl*, std::vector<int>> by_storage_;
  std::vector<std::string> problems_;
};

}  // namespace

WrapPolicy wrap_marked() {
  return {.takes = [](const WrapCandidate&) { return false; }};
}

WrapPolicy wrap_size(std::int64_t numel) {
  INTARSIA_CHECK(kUsage, numel >= 1, "units of at least ", numel, " elements; 1 or more is needed");
  return {.takes = [numel](const WrapCandidate& candidate) {
    const bool container = dynamic_cast<const torch::nn::ModuleListImpl*>(&candidate.module) != nullptr ||
                           dynamic_cast<const torch::nn::ModuleDictImpl*>(&candidate.module) != nullptr;
    return !container && candidate.numel >= numel;
  }};
}

WrapPolicy wrap_names(std::vector<std::string> names) {
  const std::set<std::string> wanted(names.begin(), names.end());
  return {.takes = [wanted](const WrapCandidate& candidate) { return wanted.contains(candidate.name); },
          .names = std::move(names)};
}

Inspected inspect(Module& module, const InspectOptions& options) { return Inspector(module, options).run(); }

void check_registered(const Module& module, const Inspected& inspected) {
  std::vector<std::pair<std::string, at::Tensor>> now;
  list_registered(module, "", now);
  for (std::size_t i = 0; i < std::max(now.size(), inspected.registered.size()); ++i) {
    const bool there = i < now.size() && i < inspected.registered.size();
    INTARSIA_CHECK(
        kUsage,
        there && now[i].first == inspected.registered[i].first && now[i].second.is_same(inspected.registered[i].second),
        "parameter ", printable(i < now.size() ? now[i].first : inspected.registered[i].first),
        " was replaced, added or removed after wrapping; change the module before it is wrapped");
  }
}

ModuleWeights::ModuleWeights(const Inspected& inspected, const plan::WeightSource& otherwise) : otherwise_(otherwise) {
  for (std::size_t param = 0; param < inspected.leaves.size(); ++param)
    leaves_.emplace(inspected.model.params[param].name, inspected.leaves[param][0]);
}

void ModuleWeights::read(const plan::ParamSpec& param, plan::Range range, float* out) const {
  const at::NoGradGuard no_grad;
  const auto leaf = leaves_.find(param.name);
  INTARSIA_INVARIANT(leaf != leaves_.end(), "parameter ", param.name, " is not of this module");
  if (leaf->second.is_meta()) return otherwise_.read(param, range, out);
  const at::Tensor flat = leaf->second.detach().contiguous().view({-1}).narrow(0, range.begin, range.size());
  at::from_blob(out, {range.size()}, at::kFloat).copy_(flat);
}

}  // namespace intarsia::nn
