#include "intarsia/plan/optimizer_states.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

bool is_embedding_or_head(const ParamSpec& param) {
  const auto has = [](const std::string& name) {
    return name.find("embed") != std::string::npos || name.find("lm_head") != std::string::npos;
  };
  return has(param.name) || std::ranges::any_of(param.tied_names, has);
}

StateBuffer make_buffer(const RunPlan& plan, const FlatLayout& layout, const std::vector<int>& owners,
                        std::optional<int> shard, const StateSpec& kind) {
  const Range range =
      shard ? resting(layout, plan.placement.optimizer, plan.grid(), *shard) : Range{0, layout.flat_numel()};
  StateBuffer buffer{.kind = kind.kind, .dtype = kind.dtype};
  bool everywhere = true;
  for (const ParamSlot& slot : layout.slots) {
    const auto index = static_cast<std::size_t>(slot.param);
    const std::vector<StateSpec> specs = state_specs(plan.optimizer, plan.model.params[index]);
    const auto spec = std::ranges::find(specs, kind.kind, &StateSpec::kind);
    StateSlot& held = buffer.slots.emplace_back();
    if (spec == specs.end()) {
      everywhere = everywhere && slot.numel == 0;
      continue;
    }
    if (spec->owned) {
      everywhere = false;
      if (!shard || owners[index] == *shard)
        held.elements = {0,
                         std::accumulate(spec->shape.begin(), spec->shape.end(), std::int64_t{1}, std::multiplies{})};
    } else {
      held.elements = param_range(slot, range);
    }
    held.begin = buffer.numel;
    buffer.numel += held.elements.size();
  }
  if (!everywhere) return buffer;
  buffer.numel = range.size();
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    StateSlot& held = buffer.slots[i];
    if (held.elements.size() > 0) held.begin = layout.slots[i].offset + held.elements.begin - range.begin;
  }
  return buffer;
}

}  // namespace

std::string_view kind_name(TensorKind kind) {
  switch (kind) {
    case TensorKind::kMaster:
      return "master";
    case TensorKind::kWeight:
      return "weight";
    case TensorKind::kExpAvg:
      return "exp_avg";
    case TensorKind::kExpAvgSq:
      return "exp_avg_sq";
    case TensorKind::kMomentum:
      return "momentum_buffer";
    case TensorKind::kSum:
      return "sum";
    case TensorKind::kRowVar:
      return "row_var";
    case TensorKind::kColVar:
      return "col_var";
    case TensorKind::kVariance:
      return "variance";
    case TensorKind::kEma:
      return "ema";
  }
  fail(ErrorKind::kInternal, "unknown tensor kind");
}

std::vector<StateSpec> state_specs(const OptimizerPlan& optimizer, const ParamSpec& param) {
  std::vector<StateSpec> specs;
  if (param.frozen) return specs;
  const auto add = [&](TensorKind kind) {
    specs.push_back({.kind = kind, .dtype = optimizer.state_dtype, .shape = param.shape});
  };
  const auto add_adam = [&] {
    add(TensorKind::kExpAvg);
    add(TensorKind::kExpAvgSq);
  };
  switch (optimizer.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kLamb:
      add_adam();
      break;
    case OptimizerKind::kSgd:
      if (optimizer.momentum != 0) add(TensorKind::kMomentum);
      break;
    case OptimizerKind::kLion:
      add(TensorKind::kExpAvg);
      break;
    case OptimizerKind::kAdagrad:
      add(TensorKind::kSum);
      break;
    case OptimizerKind::kMuon:
      if (updates_matrix(optimizer, param)) {
        add(TensorKind::kMomentum);
      } else {
        add_adam();
      }
      break;
    case OptimizerKind::kAdafactor:
      if (!updates_matrix(optimizer, param)) {
        add(TensorKind::kVariance);
        break;
      }
      const std::size_t dims = param.shape.size();
      std::vector<std::int64_t> rows = param.shape, columns = param.shape;
      rows[dims - 1] = columns[dims - 2] = 1;
      specs.push_back({.kind = TensorKind::kRowVar, .dtype = optimizer.state_dtype, .shape = rows, .owned = true});
      specs.push_back({.kind = TensorKind::kColVar, .dtype = optimizer.state_dtype, .shape = columns, .owned = true});
      break;
  }
  if (optimizer.ema_decay > 0) specs.push_back({.kind = TensorKind::kEma, .shape = param.shape});
  return specs;
}

bool updates_matrix(const OptimizerPlan& optimizer, const ParamSpec& param) {
  if (param.frozen || param.numel() == 0 || param.shape.size() < 2) return false;
  return optimizer.kind == OptimizerKind::kAdafactor ||
         (optimizer.kind == OptimizerKind::kMuon && !is_embedding_or_head(param));
}

std::vector<int> matrix_owners(const RunPlan& plan) {
  const std::vector<ParamSpec>& params = plan.model.params;
  std::vector<int> owners(params.size(), -1), order;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (updates_matrix(plan.optimizer, params[i])) order.push_back(static_cast<int>(i));
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int index) { return params[static_cast<std::size_t>(index)].numel(); });
  // A replicated state has no owners in memory; its checkpoint is divided among all ranks.
  const Rest rest = plan.placement.optimizer == Rest::kReplicated ? Rest::kSpread : plan.placement.optimizer;
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks_of_copy(rest, plan.grid())), 0);
  for (const int index : order) {
    const auto least = std::ranges::min_element(load);
    *least += params[static_cast<std::size_t>(index)].numel();
    owners[static_cast<std::size_t>(index)] = static_cast<int>(least - load.begin());
  }
  return owners;
}

std::vector<StateBuffer> state_buffers(const RunPlan& plan, const FlatLayout& layout, const std::vector<int>& owners,
                                       std::optional<int> shard) {
  std::vector<StateBuffer> buffers;
  for (const ParamSlot& slot : layout.slots)
    for (const StateSpec& spec : state_specs(plan.optimizer, plan.model.params[static_cast<std::size_t>(slot.param)]))
      if (std::ranges::find(buffers, spec.kind, &StateBuffer::kind) == buffers.end())
        buffers.push_back(make_buffer(plan, layout, owners, shard, spec));
  return buffers;
}

std::int64_t optimizer_state_bytes(const RunPlan& plan) {
  const std::vector<int> owners = matrix_owners(plan);
  const int ranks = ranks_of_copy(plan.placement.optimizer, plan.grid());
  const bool sharded = plan.placement.optimizer != Rest::kReplicated;
  // Only where some parameters are matrices do ranks differ.
  const bool uneven = sharded && std::ranges::any_of(owners, [](int owner) { return owner >= 0; });
  std::int64_t most = 0;
  for (int shard = 0; shard < (uneven ? ranks : 1); ++shard) {
    std::int64_t bytes = 0;
    for (const FlatLayout& layout : plan.flats) {
      if (!layout.trainable) continue;
      for (const StateBuffer& buffer :
           state_buffers(plan, layout, owners, sharded ? std::optional<int>(shard) : std::nullopt))
        bytes += buffer.numel * static_cast<std::int64_t>(dtype_size(buffer.dtype));
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace intarsia::plan
