#include "intarsia/shard/flat_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "intarsia/tensor/device.h"
#include "intarsia/tensor/dtype_map.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

using plan::ParamSlot;
using plan::Range;
using plan::Rest;
using tensor::MemoryCategory;
using tensor::MemoryScope;

at::Tensor zeros(const plan::RunPlan& plan, std::int64_t numel, at::ScalarType type, MemoryCategory category) {
  const MemoryScope scope(category);
  return at::zeros({numel}, at::TensorOptions().dtype(type).device(tensor::device_of(plan.device)));
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

void allocate_compute(const plan::RunPlan& plan, const comm::DataAxes& axes, FlatState& state) {
  const at::ScalarType type = tensor::scalar_type(plan.compute_dtype);
  const bool sharded = plan.placement.params != Rest::kReplicated && plan.grid().shards > 1;
  if (sharded) {
    const auto bytes = state.whole.size() * static_cast<std::int64_t>(dtype_size(plan.compute_dtype));
    state.shared = axes.shard.allocate_shared(bytes);
  }
  state.mapped = state.shared != nullptr;
  state.gathered = sharded && !state.mapped;
  state.held = state.gathered ? state.kept : state.whole;
  if (state.mapped) {  // in host memory: communicators of a device share none
    state.compute = at::from_blob(state.shared->data(), {state.whole.size()}, at::TensorOptions().dtype(type));
    // A shared mapping counts once, on the shard's owner.
    tensor::book_memory(axes.world.rank(), MemoryCategory::kParams,
                        state.kept.size() * static_cast<std::int64_t>(dtype_size(plan.compute_dtype)));
  } else {
    state.compute = zeros(plan, state.held.size(), type, MemoryCategory::kParams);
  }
}

void fill_state(const plan::RunPlan& plan, const plan::WeightSource& weights, FlatState& state) {
  if (state.layout->trainable) {
    const bool apart = plan.compute_dtype != plan.master_dtype;
    state.master =
        apart ? zeros(plan, state.updated.size(), tensor::scalar_type(plan.master_dtype), MemoryCategory::kMasters)
              : FlatState::piece(state.compute, state.held, state.updated);
    if (apart) fill(plan, *state.layout, weights, state.updated, state.master);
    state.grad = zeros(plan, state.grad_range.size(), at::kFloat, MemoryCategory::kGradients);
  }
  fill(plan, *state.layout, weights, state.kept, FlatState::piece(state.compute, state.held, state.kept));
}

}  // namespace

std::vector<FlatState> make_flat_states(const plan::RunPlan& plan, const comm::DataAxes& axes,
                                        const plan::WeightSource& weights,
                                        const std::function<void(const plan::FlatLayout&)>& filled) {
  const at::NoGradGuard no_grad;
  std::vector<FlatState> states;
  for (const plan::FlatLayout& layout : plan.flats) {
    FlatState state;
    state.layout = &layout;
    state.whole = {0, layout.flat_numel()};
    const auto rests = [&](Rest rest) { return plan::resting(layout, rest, plan.grid(), axes.world.rank()); };
    state.own = rests(Rest::kSpread);
    state.kept = rests(plan.placement.params);
    state.updated = rests(plan.placement.optimizer);
    state.grad_range = rests(plan.placement.grads);
    allocate_compute(plan, axes, state);
    fill_state(plan, weights, state);
    states.push_back(std::move(state));
    if (filled) filled(layout);
  }
  axes.world.barrier({"", "weights written"});
  return states;
}

void expand(const plan::RunPlan& plan, const comm::DataAxes& axes, const plan::FlatLayout& layout,
            const at::Tensor& tensor, Range holds, Rest from, Rest to, const char* phase) {
  const auto piece = [&](Rest rest) {
    return FlatState::piece(tensor, holds, plan::resting(layout, rest, plan.grid(), axes.world.rank()));
  };
  if (from == Rest::kSpread && to != Rest::kSpread && axes.replicate != nullptr)
    axes.replicate->all_gather(piece(Rest::kSharded), piece(Rest::kSpread), {layout.name, phase})->wait();
  if (from != Rest::kReplicated && to == Rest::kReplicated && axes.shard.size() > 1)
    axes.shard.all_gather(piece(Rest::kReplicated), piece(Rest::kSharded), {layout.name, phase})->wait();
}

}  // namespace intarsia::shard
