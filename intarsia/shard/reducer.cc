#include "intarsia/shard/reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "intarsia/tensor/device.h"
#include "intarsia/tensor/dtype_map.h"
#include "intarsia/tensor/kernels/rows.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

using plan::Rest;
using tensor::MemoryCategory;
using tensor::MemoryScope;

std::int64_t largest_trainable(const std::vector<FlatState>& states) {
  std::int64_t largest = 0;
  for (const FlatState& state : states)
    if (state.layout->trainable) largest = std::max(largest, state.whole.size());
  return largest;
}

at::Tensor fp32_buffer(const plan::RunPlan& plan, std::int64_t numel) {
  const MemoryScope scope(MemoryCategory::kReduce);
  return at::empty({numel}, at::TensorOptions().dtype(at::kFloat).device(tensor::device_of(plan.device)));
}

// An operation and what is to be done with its result.
class WorkThen final : public comm::Work {
 public:
  WorkThen(std::unique_ptr<comm::Work> work, std::function<void()> then)
      : work_(std::move(work)), then_(std::move(then)) {}
  void wait() override {
    work_->wait();
    then_();
  }

 private:
  std::unique_ptr<comm::Work> work_;
  std::function<void()> then_;
};

}  // namespace

Reducer::Reducer(const plan::RunPlan& plan, const comm::DataAxes& axes, std::vector<FlatState>& states)
    : plan_(plan),
      axes_(axes),
      states_(states),
      whole_(plan.placement.grads == Rest::kReplicated || plan.ranks == 1),
      pending_(states.size()),
      started_(states.size(), false),
      finished_(states.size(), false) {
  for (int buffer = 0; !whole_ && buffer < (plan.overlap ? 2 : 1); ++buffer)
    buffers_.push_back(fp32_buffer(plan, largest_trainable(states)));
  if (!plan.reproducible) return;
  for (const FlatState& state : states) {
    const bool trainable = state.layout->trainable;
    trees_.emplace_back(trainable ? state.grad : at::zeros({0}, at::kFloat), trainable ? plan.accumulation : 1);
  }
}

at::Tensor Reducer::take_buffer(std::int64_t numel) {
  const auto fits = std::ranges::find_if(buffers_, [&](const at::Tensor& free) { return free.numel() >= numel; });
  // A tied embedding holds its buffer while the blocks come and go.
  if (fits == buffers_.end()) return fp32_buffer(plan_, numel);
  at::Tensor buffer = *fits;
  buffers_.erase(fits);
  return buffer;
}

Reducer::Gathering& Reducer::pending(std::size_t flat) {
  Gathering& of_flat = pending_[flat];
  if (!of_flat.buffer.defined()) {
    of_flat.buffer = take_buffer(states_[flat].whole.size());
    of_flat.filled.assign(states_[flat].layout->slots.size(), false);
  }
  return of_flat;
}

// Zeros for parameters without a gradient, and for the padding.
void Reducer::clear_unfilled(std::size_t flat) {
  const Gathering& of_flat = pending(flat);
  std::int64_t done = 0;
  const auto clear_to = [&](std::int64_t end) {
    if (done < end) of_flat.buffer.narrow(0, done, end - done).zero_();
  };
  const std::vector<plan::ParamSlot>& slots = states_[flat].layout->slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!of_flat.filled[i]) continue;
    clear_to(slots[i].offset);
    done = slots[i].offset + slots[i].numel;
  }
  clear_to(states_[flat].whole.size());
}

void Reducer::start_window() {
  const at::NoGradGuard no_grad;
  micro_step_ = 0;
  land();  // of a micro-step that failed
  std::fill(started_.begin(), started_.end(), false);
  std::fill(finished_.begin(), finished_.end(), false);
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    if (pending_[flat].buffer.defined()) buffers_.push_back(pending_[flat].buffer);  // of a micro-step that failed
    pending_[flat] = {};
    if (whole_ && trees_.empty() && states_[flat].layout->trainable) states_[flat].grad.zero_();
  }
}

void Reducer::add(std::size_t flat, const plan::ParamSlot& slot, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  at::Tensor target;
  bool first = false;  // what is there does not count
  if (!whole_) {
    Gathering& of_flat = pending(flat);
    target = of_flat.buffer;
    const std::vector<plan::ParamSlot>& slots = states_[flat].layout->slots;
    // The last at this offset: parameters without elements may stand before it.
    const auto after = std::ranges::upper_bound(slots, slot.offset, {}, &plan::ParamSlot::offset) - slots.begin();
    const auto index = static_cast<std::size_t>(after - 1);
    first = !of_flat.filled[index];
    of_flat.filled[index] = true;
  } else if (trees_.empty()) {
    target = states_[flat].grad;
  } else {
    target = trees_[flat].place(micro_step_);
    if (!finished_[flat]) target.zero_();
    finished_[flat] = true;
  }
  const at::Tensor sum = target.narrow(0, slot.offset, slot.numel);
  const bool bf16 = gradient.scalar_type() == at::kBFloat16;
  if (!gradient.is_cpu() || !gradient.is_contiguous() || (!bf16 && gradient.scalar_type() != at::kFloat)) {
    if (first) sum.zero_();
    sum.view(gradient.sizes()).add_(gradient);
    return;
  }
  // ATen would first make an fp32 tensor of one in bf16.
  tensor::add_to_fp32(sum.mutable_data_ptr<float>(), gradient.const_data_ptr(), slot.numel, bf16, first);
}

Reducer::WorkPtr Reducer::start(comm::Communicator& axis, const at::Tensor& out, const at::Tensor& in,
                                const comm::Tag& tag) {
  if (plan_.reduce_dtype == DType::kF32 || axis.size() == 1) return axis.reduce_scatter(out, in, tag);
  const MemoryScope scope(MemoryCategory::kReduce);
  const at::ScalarType type = tensor::scalar_type(plan_.reduce_dtype);
  const at::Tensor narrow = (in * plan_.reduce_factor).to(type);
  const at::Tensor sum = narrow.narrow(0, axis.rank() * out.numel(), out.numel());
  return std::make_unique<WorkThen>(axis.reduce_scatter(sum, narrow, tag),
                                    [narrow, sum, out, this] { out.copy_(sum).div_(plan_.reduce_factor); });
}

// Sums one micro-step's whole buffer `in` over the axes that `grad` is cut over, into `out`.
Reducer::WorkPtr Reducer::start_micro_step(const FlatState& state, const at::Tensor& in, const at::Tensor& out) {
  const comm::Tag tag{state.layout->name, "reduce gradients"};
  if (plan_.placement.grads != Rest::kSpread || axes_.replicate == nullptr) return start(axes_.shard, out, in, tag);
  const plan::Range shard = plan::resting(*state.layout, Rest::kSharded, plan_.grid(), axes_.world.rank());
  const at::Tensor part = FlatState::piece(in, state.whole, shard);
  return std::make_unique<WorkThen>(start(axes_.shard, part, in, tag),
                                    [this, out, part, tag] { start(*axes_.replicate, out, part, tag)->wait(); });
}

void Reducer::finish_flat(std::size_t flat) {
  FlatState& state = states_[flat];
  if (whole_ || !state.layout->trainable) return;
  const at::NoGradGuard no_grad;
  land();
  clear_unfilled(flat);
  const at::Tensor buffer = pending(flat).buffer;
  const at::Tensor in = buffer.narrow(0, 0, state.whole.size());
  flying_ = {.buffer = buffer, .part = state.grad};
  if (!trees_.empty()) {
    flying_.part = trees_[flat].place(micro_step_);
  } else if (started_[flat]) {
    flying_.part = FlatState::piece(in, state.whole, state.grad_range);  // its own piece is not read any more
    flying_.sum = state.grad;
  }
  flying_.work = start_micro_step(state, in, flying_.part);
  started_[flat] = finished_[flat] = true;
  pending_[flat] = {};
  if (!plan_.overlap) land();
}

// Waits for the reduction that is under way.
void Reducer::land() {
  if (!flying_.work) return;
  const Flying landed = std::exchange(flying_, {});
  landed.work->wait();
  if (landed.sum.defined()) landed.sum.add_(landed.part);
  buffers_.push_back(landed.buffer);
}

void Reducer::finish_micro_step() {
  const at::NoGradGuard no_grad;
  land();
  if (!trees_.empty()) {
    for (std::size_t flat = 0; flat < states_.size(); ++flat) {
      if (!states_[flat].layout->trainable) continue;
      if (!finished_[flat]) trees_[flat].place(micro_step_).zero_();
      trees_[flat].settle(micro_step_);
    }
  }
  std::fill(finished_.begin(), finished_.end(), false);
  ++micro_step_;
}

void Reducer::finish_window() {
  const at::NoGradGuard no_grad;
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    FlatState& state = states_[flat];
    if (!state.layout->trainable) continue;
    if (!whole_ && trees_.empty() && !started_[flat]) state.grad.zero_();  // a unit that no micro-step entered
    if (plan_.ranks == 1) continue;
    const comm::Tag tag{state.layout->name, "reduce gradients"};
    const auto piece = [&](Rest rest) {
      return FlatState::piece(state.grad, state.grad_range,
                              plan::resting(*state.layout, rest, plan_.grid(), axes_.world.rank()));
    };
    if (whole_) start(axes_.shard, piece(Rest::kSharded), state.grad, tag)->wait();
    if (plan_.placement.grads != Rest::kSpread && axes_.replicate != nullptr)
      start(*axes_.replicate, piece(Rest::kSpread), piece(Rest::kSharded), tag)->wait();
    expand(plan_, axes_, *state.layout, state.grad, state.grad_range, Rest::kSpread, plan_.placement.optimizer,
           "gather gradients");
  }
}

}  // namespace intarsia::shard
