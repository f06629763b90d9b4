#include "intarsia/shard/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/nn/recompute/saved_tensor_scope.h"
#include "intarsia/tensor/block_sums.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/dtype_map.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

using plan::Rest;

// Hands a parameter's gradient to the reducer as soon as autograd has it, and frees it.
class TakeGradient final : public torch::autograd::PostAccumulateGradHook {
 public:
  // `holds` counts who holds the parameter's unit whole.
  TakeGradient(const plan::RunPlan& plan, Reducer& reducer, std::size_t flat, plan::ParamSlot slot, const int& holds)
      : plan_(plan), reducer_(reducer), flat_(flat), slot_(slot), holds_(holds), memory_rank_(tensor::memory_rank()) {}
  void operator()(const at::Tensor& leaf) override {
    const tensor::MemoryRankScope memory(memory_rank_);
    // Where parameters are whole for ever nothing else notices, and what comes after the reduction would be lost.
    INTARSIA_CHECK(kUsage, holds_ > 0, "parameter ", plan_.model.params[static_cast<std::size_t>(slot_.param)].name,
                   " was used outside its unit ",
                   plan_.model.units[static_cast<std::size_t>(plan_.flats[flat_].unit)].name,
                   ": it got a gradient while the unit was not in its backward. Read it inside its unit only");
    reducer_.add(flat_, slot_, leaf.grad());
    leaf.mutable_grad().reset();
  }

 private:
  const plan::RunPlan& plan_;
  Reducer& reducer_;
  std::size_t flat_;
  plan::ParamSlot slot_;
  const int& holds_;
  int memory_rank_;  // of the thread that made the engine
};

std::int64_t largest_unit(const plan::RunPlan& plan) {
  std::vector<std::int64_t> numel(plan.model.units.size(), 0);
  for (const plan::FlatLayout& layout : plan.flats) numel[static_cast<std::size_t>(layout.unit)] += layout.flat_numel();
  return numel.empty() ? 0 : *std::ranges::max_element(numel);
}

}  // namespace

Engine::Engine(const plan::RunPlan& plan, const comm::DataAxes& axes, const plan::WeightSource& weights)
    : Engine(plan, axes, weights, nn::Parameters(plan.model, plan.compute_dtype, tensor::device_of(plan.device))) {}

Engine::Engine(const plan::RunPlan& plan, const comm::DataAxes& axes, const plan::WeightSource& weights,
               nn::Parameters parameters)
    : plan_(plan),
      axes_(axes),
      parameters_(std::move(parameters)),
      states_(make_flat_states(plan, axes, weights,
                               [this](const plan::FlatLayout& filled) {
                                 for (const plan::ParamSlot& slot : filled.slots) parameters_.detach(slot.param);
                               })),
      reducer_(plan, axes, states_),
      units_(plan.model.units.size()),
      memory_rank_(tensor::memory_rank()),
      sharded_params_(plan.placement.params != Rest::kReplicated && plan.grid().shards > 1),
      gathered_(std::ranges::any_of(states_, [](const FlatState& state) { return state.gathered; })) {
  if (plan.device != DeviceKind::kCpu) nn::prepare_saved_tensors();
  INTARSIA_INVARIANT(axes.world.size() == plan.ranks && axes.shard.size() == plan.grid().shards, "the axes have ",
                     axes.shard.size(), " of ", axes.world.size(), " ranks, the plan ", plan.grid().shards, " of ",
                     plan.ranks);
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    const plan::FlatLayout& layout = *states_[flat].layout;
    UnitState& unit = units_[static_cast<std::size_t>(layout.unit)];
    unit.flats.push_back(flat);
    if (!layout.trainable) continue;
    for (const plan::ParamSlot& slot : layout.slots)
      for (int use = 0; use < parameters_.uses(slot.param); ++use)
        torch::autograd::impl::set_post_acc_grad_hooks(
            parameters_.leaf(slot.param, use), std::make_unique<TakeGradient>(plan_, reducer_, flat, slot, unit.holds));
  }
  if (gathered_)
    ring_ = GatherRing(
        largest_unit(plan),
        at::TensorOptions().dtype(tensor::scalar_type(plan.compute_dtype)).device(tensor::device_of(plan.device)),
        plan.overlap ? 2 : 1);
  if (!sharded_params_)
    for (UnitState& unit : units_) attach(unit);
}

Engine::~Engine() {
  // The hooks refer to the reducer, and the windows to buffers of ours: neither may outlive this object.
  for (int param = 0; param < parameters_.count(); ++param) {
    for (int use = 0; use < parameters_.uses(param); ++use)
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_.leaf(param, use), nullptr);
    parameters_.detach(param);
  }
  for (const FlatState& state : states_)
    if (state.mapped)
      tensor::book_memory(axes_.world.rank(), tensor::MemoryCategory::kParams,
                          -state.kept.size() * static_cast<std::int64_t>(dtype_size(plan_.compute_dtype)));
}

void Engine::start_gathers(UnitState& unit) {
  if (!gathered_ || unit.flats.empty()) return;
  unit.slot = ring_.borrow();
  std::int64_t begin = 0;
  for (const std::size_t flat : unit.flats) {
    const FlatState& state = states_[flat];
    const at::Tensor window = ring_.slot(unit.slot).narrow(0, begin, state.whole.size());
    begin += state.whole.size();
    unit.gathers.push_back(axes_.shard.all_gather(window, state.compute, {state.layout->name, "gather parameters"}));
  }
}

void Engine::attach(UnitState& unit) {
  for (const auto& gather : unit.gathers) gather->wait();
  unit.gathers.clear();
  std::int64_t begin = 0;
  for (const std::size_t flat : unit.flats) {
    const FlatState& state = states_[flat];
    at::Tensor window = state.compute;
    if (state.gathered) {
      window = ring_.slot(unit.slot).narrow(0, begin, state.whole.size());
      begin += state.whole.size();
    }
    for (const plan::ParamSlot& slot : state.layout->slots)
      parameters_.attach(slot.param, window.narrow(0, slot.offset, slot.numel));
  }
}

void Engine::detach(UnitState& unit) {
  for (const std::size_t flat : unit.flats)
    for (const plan::ParamSlot& slot : states_[flat].layout->slots) parameters_.detach(slot.param);
}

void Engine::hold(int index) {
  UnitState& unit = units_[static_cast<std::size_t>(index)];
  if (++unit.holds > 1 || !sharded_params_) return;
  const at::NoGradGuard no_grad;
  if (expected_ == index) {
    expected_ = -1;
  } else {
    forget_expected();
    start_gathers(unit);
  }
  attach(unit);
  if (plan_.overlap && gathered_) expect(order_.follow(index));
}

// `next` is the unit that will be asked for after the one that has just been made whole; -1: unknown.
void Engine::expect(int next) {
  if (next < 0 || units_[static_cast<std::size_t>(next)].holds > 0) return;  // itself, most of all: see release
  expected_ = next;
  start_gathers(units_[static_cast<std::size_t>(next)]);
}

void Engine::forget_expected() {
  if (expected_ < 0) return;
  UnitState& unit = units_[static_cast<std::size_t>(expected_)];
  expected_ = -1;
  for (const auto& gather : unit.gathers) gather->wait();
  unit.gathers.clear();
  if (unit.slot >= 0) ring_.give_back(unit.slot);
  unit.slot = -1;
}

void Engine::release(int index) {
  UnitState& unit = units_[static_cast<std::size_t>(index)];
  if (unit.holds == 0 || --unit.holds > 0 || !sharded_params_) return;
  detach(unit);
  if (expected_ < 0 && order_.next() == index) {  // the last one of the forward is the first of the backward
    expected_ = index;
    return;
  }
  if (unit.slot >= 0) ring_.give_back(unit.slot);
  unit.slot = -1;
}

void Engine::pre_forward(int unit) {
  for (const int param : plan_.model.units[static_cast<std::size_t>(unit)].params)
    parameters_.check_not_replaced(param);
  hold(unit);
}

void Engine::post_forward(int unit, bool needs_backward) {
  if (needs_backward) ++units_[static_cast<std::size_t>(unit)].open_entries;
  if (needs_backward && plan_.placement.keep_after_forward) return;  // until finish_unit
  release(unit);
}

// A device's backward runs on a thread of autograd's, which knows no rank.
void Engine::pre_backward(int unit) {
  const tensor::MemoryRankScope memory(memory_rank_);
  units_[static_cast<std::size_t>(unit)].in_backward = true;
  hold(unit);
}

void Engine::post_backward(int index) {
  const tensor::MemoryRankScope memory(memory_rank_);
  UnitState& unit = units_[static_cast<std::size_t>(index)];
  release(index);
  if (--unit.open_entries == 0) finish_unit(index);
}

void Engine::finish_unit(int index) {
  UnitState& unit = units_[static_cast<std::size_t>(index)];
  while (unit.holds > 0) release(index);
  unit.open_entries = 0;
  unit.in_backward = false;
  for (const std::size_t flat : unit.flats) reducer_.finish_flat(flat);
}

void Engine::start_window() { reducer_.start_window(); }

void Engine::backward(const at::Tensor& loss_sum, double loss_scale) {
  if (loss_sum.requires_grad()) {
    const at::Tensor seed = at::full({}, loss_scale / static_cast<double>(plan_.loss_divisor()), loss_sum.options());
    torch::autograd::backward({loss_sum}, {seed.to(loss_sum.scalar_type())});
  }
  // Units whose input needs no gradient (the first) end here, in an order that all ranks share.
  for (int unit = static_cast<int>(units_.size()) - 1; unit >= 0; --unit) {
    const UnitState& state = units_[static_cast<std::size_t>(unit)];
    if (state.in_backward || state.open_entries > 0) finish_unit(unit);
  }
  forget_expected();
  order_.end();
  reducer_.finish_micro_step();
}

void Engine::finish_window() { reducer_.finish_window(); }

double Engine::gradient_square_sum() {
  if (plan_.reproducible) return add_block_sums();
  double own = 0;
  for (const FlatState& state : states_) {
    if (!state.layout->trainable) continue;
    own += tensor::square_sum_of(FlatState::piece(state.grad, state.grad_range, state.own));
  }
  const at::Tensor mine = at::full({1}, own, at::kDouble);
  const at::Tensor all = at::empty({world().size()}, at::kDouble);
  world().all_gather(all, mine, {"", "gradient norm"})->wait();
  double sum = 0;
  for (std::int64_t rank = 0; rank < world().size(); ++rank) sum += all.const_data_ptr<double>()[rank];
  return sum;
}

// Blocks begin where flat buffers do, in every layout; the padding at a buffer's end adds zeros.
double Engine::add_block_sums() const {
  std::int64_t blocks = 0;
  for (const FlatState& state : states_)
    if (state.layout->trainable) blocks += state.own.size() / plan::kShardBlock;
  const at::Tensor mine = at::empty({blocks}, at::kDouble);
  std::int64_t filled = 0;
  for (const FlatState& state : states_) {
    if (!state.layout->trainable) continue;
    const std::int64_t count = state.own.size() / plan::kShardBlock;
    tensor::block_square_sums(FlatState::piece(state.grad, state.grad_range, state.own), mine.narrow(0, filled, count));
    filled += count;
  }
  const at::Tensor all = at::empty({world().size() * blocks}, at::kDouble);
  world().all_gather(all, mine, {"", "gradient norm"})->wait();
  double sum = 0;
  std::int64_t before = 0;  // blocks of earlier buffers in a rank's list
  for (const FlatState& state : states_) {
    if (!state.layout->trainable) continue;
    const std::int64_t count = state.own.size() / plan::kShardBlock;
    for (int piece = 0; piece < plan_.ranks; ++piece) {
      const double* list = all.const_data_ptr<double>() + plan_.grid().rank_of_piece(piece) * blocks + before;
      for (std::int64_t block = 0; block < count; ++block) sum += list[block];
    }
    before += count;
  }
  return sum;
}

void Engine::publish() {
  const at::NoGradGuard no_grad;
  forget_expected();  // of a pass without backward: it has old weights
  for (FlatState& state : states_) {
    if (!state.layout->trainable) continue;
    if (plan_.compute_dtype != plan_.master_dtype)
      FlatState::piece(state.compute, state.held, state.updated).copy_(state.master);
    expand(plan_, axes_, *state.layout, state.compute, state.held, plan_.placement.optimizer, plan_.placement.params,
           "gather updated parameters");
  }
  if (sharded_params_) axes_.shard.barrier({"", "weights written"});
}

at::Tensor Engine::gather(std::size_t flat, What what) {
  const at::NoGradGuard no_grad;
  const FlatState& state = states_[flat];
  const bool trainable = state.layout->trainable;
  INTARSIA_INVARIANT(what == What::kMaster || trainable, state.layout->name, " has no gradient");
  // Frozen buffers have no master: what they compute with is all there is. Of a gradient the part that the optimizer
  // reads is the sum over ranks.
  const bool weight = what == What::kMaster && !trainable;
  const at::Tensor source = what == What::kGradient ? state.grad : trainable ? state.master : state.compute;
  const plan::Range holds = what == What::kGradient ? state.grad_range : trainable ? state.updated : state.held;
  const plan::Rest from = weight ? plan_.placement.params : plan_.placement.optimizer;
  const plan::Range valid = weight ? state.kept : state.updated;
  if (valid.size() == state.whole.size())
    return source.to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU), false, true);
  at::Tensor whole = at::empty({state.whole.size()}, at::kFloat);
  FlatState::piece(whole, state.whole, valid).copy_(FlatState::piece(source, holds, valid));
  expand(plan_, axes_, *state.layout, whole, state.whole, from, Rest::kReplicated, "gather for export");
  return whole;
}

}  // namespace intarsia::shard
