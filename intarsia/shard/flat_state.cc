#include "intarsia/shard/flat_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "intarsia/tensor/dtype_map.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

using plan::ParamSlot;
using plan::Range;
using plan::Rest;
using tensor::MemoryCategory;
using tensor::MemoryScope;

at::Tensor zeros(std::int64_t numel, at::ScalarType type, MemoryCategory category) {
  const MemoryScope scope(category);
  return at::zeros({numel}, at::TensorOptions().dtype(type));
}

// Reads the part of each parameter that lies in `range` into `to`, which holds `range`.
void fill(const plan::RunPlan& plan, const plan::FlatLayout& layout, const plan::WeightSource& weights, Range range,
          const at::Tensor& to) {
  for (const ParamSlot& slot : layout.slots) {
    const Range elements = plan::param_range(slot, range);
    if (elements.size() == 0) continue;
    const at::Tensor values = at::empty({elements.size()}, at::kFloat);
    weights.read(plan.model.params[static_cast<std::size_t>(slot.param)], elements, values.mutable_data_ptr<float>());
    to.narrow(0, slot.offset + elements.begin - range.begin, elements.size()).copy_(values);
  }
}

void allocate_compute(const plan::RunPlan& plan, comm::Communicator& axis, FlatState& state) {
  const at::ScalarType type = tensor::scalar_type(plan.compute_dtype);
  const bool sharded = plan.placement.params == Rest::kSharded && plan.ranks > 1;
  if (sharded) {
    const auto bytes = state.whole.size() * static_cast<std::int64_t>(dtype_size(plan.compute_dtype));
    state.shared = axis.allocate_shared(bytes);
  }
  state.mapped = state.shared != nullptr;
  state.gathered = sharded && !state.mapped;
  state.held = state.gathered ? state.shard : state.whole;
  if (state.mapped) {
    state.compute = at::from_blob(state.shared->data(), {state.whole.size()}, at::TensorOptions().dtype(type));
    // A shared mapping counts once, on the shard's owner.
    tensor::book_memory(axis.rank(), MemoryCategory::kParams,
                        state.shard.size() * static_cast<std::int64_t>(dtype_size(plan.compute_dtype)));
  } else {
    state.compute = zeros(state.held.size(), type, MemoryCategory::kParams);
  }
}

void fill_state(const plan::RunPlan& plan, const plan::WeightSource& weights, FlatState& state) {
  const Range writes = state.mapped ? state.shard : state.held;
  if (state.layout->trainable) {
    state.master = plan.compute_dtype == DType::kF32
                       ? FlatState::piece(state.compute, state.held, state.updated)
                       : zeros(state.updated.size(), at::kFloat, MemoryCategory::kMasters);
    if (plan.compute_dtype != DType::kF32) fill(plan, *state.layout, weights, state.updated, state.master);
    state.grad = zeros(state.grad_range.size(), at::kFloat, MemoryCategory::kGradients);
  }
  fill(plan, *state.layout, weights, writes, FlatState::piece(state.compute, state.held, writes));
}

}  // namespace

std::vector<FlatState> make_flat_states(const plan::RunPlan& plan, comm::Communicator& axis,
                                        const plan::WeightSource& weights,
                                        const std::function<void(const plan::FlatLayout&)>& filled) {
  const at::NoGradGuard no_grad;
  std::vector<FlatState> states;
  for (const plan::FlatLayout& layout : plan.flats) {
    FlatState state;
    state.layout = &layout;
    state.whole = {0, layout.flat_numel()};
    state.shard = layout.shard(axis.rank());
    state.updated = plan.placement.optimizer == Rest::kSharded ? state.shard : state.whole;
    state.grad_range = plan.placement.grads == Rest::kSharded ? state.shard : state.whole;
    allocate_compute(plan, axis, state);
    fill_state(plan, weights, state);
    states.push_back(std::move(state));
    if (filled) filled(layout);
  }
  axis.barrier({"", "weights written"});
  return states;
}

}  // namespace intarsia::shard
