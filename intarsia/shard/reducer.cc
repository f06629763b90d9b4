#include "intarsia/shard/reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

using tensor::MemoryCategory;
using tensor::MemoryScope;

std::int64_t largest_trainable(const std::vector<FlatState>& states) {
  std::int64_t largest = 0;
  for (const FlatState& state : states)
    if (state.layout->trainable) largest = std::max(largest, state.whole.size());
  return largest;
}

}  // namespace

Reducer::Reducer(const plan::RunPlan& plan, comm::Communicator& axis, std::vector<FlatState>& states)
    : plan_(plan),
      axis_(axis),
      states_(states),
      whole_(plan.placement.grads == plan::Rest::kReplicated || plan.ranks == 1),
      pending_(states.size()),
      started_(states.size(), false) {
  if (whole_) return;
  const MemoryScope scope(MemoryCategory::kReduce);
  buffers_.push_back(at::zeros({largest_trainable(states)}, at::kFloat));
}

at::Tensor& Reducer::pending(std::size_t flat) {
  at::Tensor& buffer = pending_[flat];
  if (buffer.defined()) return buffer;
  if (buffers_.empty()) {  // a tied embedding holds its buffer while the blocks come and go
    const MemoryScope scope(MemoryCategory::kReduce);
    buffer = at::zeros({states_[flat].whole.size()}, at::kFloat);
    return buffer;
  }
  const auto fits = std::ranges::find_if(
      buffers_, [&](const at::Tensor& free) { return free.numel() >= states_[flat].whole.size(); });
  if (fits == buffers_.end()) {
    const MemoryScope scope(MemoryCategory::kReduce);
    buffer = at::zeros({states_[flat].whole.size()}, at::kFloat);
    return buffer;
  }
  buffer = *fits;
  buffers_.erase(fits);
  buffer.zero_();
  return buffer;
}

void Reducer::add(std::size_t flat, const plan::ParamSlot& slot, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor& target = whole_ ? states_[flat].grad : pending(flat);
  target.narrow(0, slot.offset, slot.numel).view(gradient.sizes()).add_(gradient);
}

void Reducer::finish_flat(std::size_t flat) {
  FlatState& state = states_[flat];
  if (whole_ || !state.layout->trainable) return;
  const at::NoGradGuard no_grad;
  at::Tensor& buffer = pending(flat);
  const at::Tensor in = buffer.narrow(0, 0, state.whole.size());
  const comm::Tag tag{state.layout->name, "reduce gradients"};
  if (!started_[flat]) {
    axis_.reduce_scatter(state.grad, in, tag)->wait();
    started_[flat] = true;
  } else {
    const at::Tensor sum = FlatState::piece(in, state.whole, state.shard);  // its own piece is not read any more
    axis_.reduce_scatter(sum, in, tag)->wait();
    state.grad.add_(sum);
  }
  buffers_.push_back(buffer);
  buffer.reset();
}

void Reducer::finish_window() {
  const at::NoGradGuard no_grad;
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    FlatState& state = states_[flat];
    if (!state.layout->trainable) continue;
    if (!whole_) {
      if (!started_[flat]) state.grad.zero_();  // a unit that no micro-step entered
      continue;
    }
    if (plan_.ranks == 1) continue;
    const at::Tensor sum = FlatState::piece(state.grad, state.grad_range, state.shard);
    axis_.reduce_scatter(sum, state.grad, {state.layout->name, "reduce gradients"})->wait();
    if (plan_.placement.optimizer == plan::Rest::kReplicated)
      axis_.all_gather(state.grad, sum, {state.layout->name, "gather gradients"})->wait();
  }
}

void Reducer::start_window() {
  const at::NoGradGuard no_grad;
  std::fill(started_.begin(), started_.end(), false);
  if (!whole_) return;
  for (FlatState& state : states_)
    if (state.layout->trainable) state.grad.zero_();
}

}  // namespace intarsia::shard
