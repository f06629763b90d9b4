#include "intarsia/plan/memory/rank_memory.h"

#include <algorithm>
#include <array>
#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/plan/lora.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/memory/model_ghost.h"
#include "intarsia/plan/memory/working_bytes.h"
#include "intarsia/plan/optimizer_states.h"
#include "intarsia/plan/unit_order.h"

namespace intarsia::plan {
namespace {

// shard/engine.cc, reducer.cc and gather_ring.cc with ghosts.
class GhostEngine final : public GhostEvents {
 public:
  GhostEngine(const RunPlan& plan, bool isolated, bool adapters_drop, Ledger& ledger, GhostTape& tape,
              StepReplay& replay)
      : plan_(plan),
        isolated_(isolated),
        adapters_drop_(adapters_drop),
        ledger_(ledger),
        tape_(tape),
        replay_(replay),
        compute_size_(static_cast<std::int64_t>(dtype_size(plan.compute_dtype))),
        sharded_params_(plan.placement.params != Rest::kReplicated && plan.grid().shards > 1),
        copied_(sharded_params_ &&
                (plan.force_copy || plan.backend == CommBackend::kGloo || plan.device != DeviceKind::kCpu)),
        whole_grads_(plan.placement.grads == Rest::kReplicated || plan.ranks == 1),
        units_(plan.model.units.size()),
        slots_of_param_(plan.model.params.size()) {
    for (std::size_t flat = 0; flat < plan.flats.size(); ++flat) {
      units_[static_cast<std::size_t>(plan.flats[flat].unit)].flats.push_back(flat);
      for (const ParamSlot& slot : plan.flats[flat].slots) slots_of_param_[static_cast<std::size_t>(slot.param)] = flat;
    }
    pending_.resize(plan.flats.size());
    book_states();
  }

  void pre_forward(int unit) override {
    hold(unit);
    begin(ActionKind::kForward, unit);
  }
  void post_forward(int unit, bool needs_backward) override {
    end();
    if (needs_backward) ++at(unit).open_entries;
    if (!needs_backward || !plan_.placement.keep_after_forward) release(unit);
    begin(ActionKind::kLoss, -1);  // of the last unit: what follows until backward comes to a unit
  }
  void pre_backward(int unit) override {
    end();
    at(unit).in_backward = true;
    hold(unit);
    begin(ActionKind::kBackward, unit);
  }
  void post_backward(int unit) override {
    end();
    release(unit);
    if (--at(unit).open_entries == 0) finish_unit(unit);
    begin(ActionKind::kBackward, unit);  // what autograd still adds until the next unit's gradient is complete
  }
  void take_gradient(int param, const Ghost& gradient) override {
    if (!whole_grads_) pending(slots_of_param_[static_cast<std::size_t>(param)]);
    // Without a kernel for it (shard/reducer.cc:add), add_ of another type makes a copy in the target's type first.
    const bool added_as_is =
        gradient.dtype == DType::kF32 || (gradient.dtype == DType::kBF16 && plan_.device == DeviceKind::kCpu);
    const Ghost wide = added_as_is ? Ghost{} : tape_.empty(gradient.numel, DType::kF32);
    tape_.touch(gradient.nbytes() + 8 * gradient.numel);
  }

  void micro_step(const formats::HfConfig& config, int micro) {
    micro_ = micro;
    const GhostBatch batch{
        .samples = plan_.micro_batch, .length = plan_.seq_len, .isolated = isolated_, .adapters_drop = adapters_drop_};
    const Holding before = tape_.set_holding(Holding::kTemporaries);
    const std::int64_t columns = isolated_ ? 3 : 2;  // ids, labels, positions
    const Ghost ids = tape_.empty(columns * batch.samples * batch.length, DType::kI64);
    tape_.set_holding(Holding::kActivations);
    run_micro_step({tape_, ledger_, *this, config, plan_, batch});
    tape_.set_holding(before);
    end();
    for (int unit = static_cast<int>(units_.size()) - 1; unit >= 0; --unit)
      if (at(unit).in_backward || at(unit).open_entries > 0) finish_unit(unit);
    forget_expected();
    order_.end();
    land();
  }

  void finish_window() {
    ledger_.begin("update");
    micro_ = kAfterWindow;
    const Rest updated = plan_.placement.optimizer;
    for (const FlatLayout& flat : plan_.flats) {
      if (!flat.trainable || plan_.ranks == 1) continue;
      if (whole_grads_) reduce(flat.unit, flat.flat_numel(), ActionAxis::kShard);
      if (plan_.placement.grads != Rest::kSpread && plan_.placement.replicas > 1)
        reduce(flat.unit, shard_numel(flat), ActionAxis::kReplicate);
      expand(flat, Rest::kSpread, updated, 4);
    }
    std::int64_t touched = 0;
    for (const FlatLayout& flat : plan_.flats)
      if (flat.trainable) touched += resting(flat, updated, plan_.grid(), 0).size();
    // Master, gradient and states read, all but the gradient written; the norm's pass; the copy in compute dtype.
    const std::int64_t per_element = 12 + 4 + (plan_.compute_dtype == DType::kF32 ? 0 : 4 + compute_size_);
    replay_.actions.push_back(
        {.kind = ActionKind::kUpdate, .unit = -1, .bytes = touched * per_element + 2 * optimizer_state_bytes(plan_)});
    const std::int64_t working = optimizer_working_bytes(plan_);
    ledger_.book(Holding::kTemporaries, working);
    ledger_.book(Holding::kTemporaries, -working);
    for (const FlatLayout& flat : plan_.flats)
      if (flat.trainable) expand(flat, updated, plan_.placement.params, compute_size_);
    if (sharded_params_) collective(ActionKind::kBarrier, -1, 0);
  }

 private:
  struct UnitState {
    std::vector<std::size_t> flats;
    int holds = 0;
    bool has_slot = false;
    int open_entries = 0;
    bool in_backward = false;
  };
  UnitState& at(int unit) { return units_[static_cast<std::size_t>(unit)]; }

  std::int64_t shard_numel(const FlatLayout& flat) const {
    return resting(flat, Rest::kSharded, plan_.grid(), 0).size();
  }

  // shard::expand.
  void expand(const FlatLayout& flat, Rest from, Rest to, std::int64_t size) {
    if (from == Rest::kSpread && to != Rest::kSpread && plan_.placement.replicas > 1)
      collective(ActionKind::kAllGather, flat.unit, size * shard_numel(flat), ActionAxis::kReplicate);
    if (from != Rest::kReplicated && to == Rest::kReplicated && plan_.grid().shards > 1)
      collective(ActionKind::kAllGather, flat.unit, size * flat.flat_numel());
  }

  // A reduction in the plan's type; what it takes while it goes on comes back.
  std::int64_t reduce(int unit, std::int64_t numel, ActionAxis axis) {
    const Grid grid = plan_.grid();
    const int ranks = axis == ActionAxis::kShard ? grid.shards : grid.replicas;
    const bool narrow = plan_.reduce_dtype != DType::kF32 && ranks > 1;
    const std::int64_t bytes = numel * (narrow ? static_cast<std::int64_t>(dtype_size(plan_.reduce_dtype)) : 4);
    collective(ActionKind::kReduceScatter, unit, bytes, axis);
    std::int64_t held = narrow ? bytes : 0;
    if (narrow) {  // scaled in fp32 first
      ledger_.book(Holding::kReduce, 4 * numel + bytes);
      ledger_.book(Holding::kReduce, -4 * numel - bytes);
    }
    if (plan_.backend == CommBackend::kGloo) held += bytes - bytes / ranks;  // the other ranks' pieces
    return held;
  }

  std::int64_t unit_numel(const UnitState& unit) const {
    std::int64_t numel = 0;
    for (const std::size_t flat : unit.flats) numel += plan_.flats[flat].flat_numel();
    return numel;
  }

  void book_states() {
    std::int64_t largest_unit = 0, largest_flat = 0;
    for (const FlatLayout& flat : plan_.flats) {
      const auto numel = [&](Rest rest) { return resting(flat, rest, plan_.grid(), 0).size(); };
      ledger_.book(Holding::kParams, compute_size_ * numel(plan_.placement.params));
      if (flat.trainable) {
        ledger_.book(Holding::kGradients, 4 * numel(plan_.placement.grads) * (1 + tree_levels(plan_)));
        if (plan_.compute_dtype != plan_.master_dtype)
          ledger_.book(Holding::kMasters,
                       static_cast<std::int64_t>(dtype_size(plan_.master_dtype)) * numel(plan_.placement.optimizer));
        largest_flat = std::max(largest_flat, flat.flat_numel());
      }
      std::int64_t largest_param = 0;  // a parameter is read in fp32, as far as the rank needs it
      for (const ParamSlot& slot : flat.slots) largest_param = std::max(largest_param, slot.numel);
      const std::int64_t read = std::min(largest_param, numel(plan_.placement.params));
      replay_.load_peak = std::max(replay_.load_peak, ledger_.total() + 4 * read);
    }
    for (const UnitState& unit : units_) largest_unit = std::max(largest_unit, unit_numel(unit));
    ledger_.book(Holding::kOptimizer, optimizer_state_bytes(plan_));
    slot_bytes_ = largest_unit * compute_size_;
    for (int copy = 0; copy < (plan_.overlap ? 2 : 1); ++copy) {
      if (copied_) grow_ring();
      if (!whole_grads_) free_buffers_.push_back(new_buffer(largest_flat));
    }
    // A flat buffer in fp32, the piece it is gathered from, and one parameter; of a run with adapters only those.
    const bool adapters = has_adapters(plan_.model);
    const std::int64_t gathered = adapters ? largest_flat : largest_unit;
    std::int64_t largest_param = 0;
    for (const ParamSpec& param : plan_.model.params)
      if (!adapters || is_adapter(param)) largest_param = std::max(largest_param, param.numel());
    replay_.export_peak =
        ledger_.total() + 4 * gathered + 4 * gathered / plan_.ranks + (adapters ? 4 : compute_size_) * largest_param;
  }

  void grow_ring() {
    ledger_.book(Holding::kGathered, slot_bytes_);
    ++free_slots_;
  }

  std::int64_t new_buffer(std::int64_t numel) {
    ledger_.book(Holding::kReduce, 4 * numel);
    return numel;
  }

  void pending(std::size_t flat) {
    if (pending_[flat]) return;
    const std::int64_t wanted = plan_.flats[flat].flat_numel();
    const auto fits = std::ranges::find_if(free_buffers_, [&](std::int64_t numel) { return numel >= wanted; });
    if (fits == free_buffers_.end()) {
      pending_[flat] = new_buffer(wanted);
      return;
    }
    pending_[flat] = *fits;
    free_buffers_.erase(fits);
  }

  void hold(int index) {
    UnitState& unit = at(index);
    if (++unit.holds > 1 || !copied_) return;
    if (expected_ == index) {
      expected_ = -1;
    } else {
      forget_expected();
      gather(index);
    }
    if (!plan_.overlap) return;
    const int next = order_.follow(index);
    if (next < 0 || at(next).holds > 0) return;
    expected_ = next;
    gather(next);
  }

  void gather(int index) {
    UnitState& unit = at(index);
    if (unit.flats.empty()) return;
    if (free_slots_ == 0) grow_ring();
    --free_slots_;
    unit.has_slot = true;
    for (const std::size_t flat : unit.flats)
      collective(ActionKind::kAllGather, index, compute_size_ * plan_.flats[flat].flat_numel());
  }

  void give_back(UnitState& unit) {
    if (unit.has_slot) ++free_slots_;
    unit.has_slot = false;
  }

  void forget_expected() {
    if (expected_ >= 0) give_back(at(expected_));
    expected_ = -1;
  }

  void release(int index) {
    UnitState& unit = at(index);
    if (unit.holds == 0 || --unit.holds > 0) return;
    if (copied_ && expected_ < 0 && order_.next() == index) {
      expected_ = index;
      return;
    }
    give_back(unit);
  }

  void finish_unit(int index) {
    UnitState& unit = at(index);
    while (unit.holds > 0) release(index);
    unit.open_entries = 0;
    unit.in_backward = false;
    if (whole_grads_) return;
    for (const std::size_t flat : unit.flats) {
      if (!plan_.flats[flat].trainable) continue;
      land();
      pending(flat);
      const FlatLayout& layout = plan_.flats[flat];
      flying_ = {.buffer = *pending_[flat], .pieces = reduce(index, layout.flat_numel(), ActionAxis::kShard)};
      ledger_.book(Holding::kTemporaries, flying_.pieces);
      if (plan_.placement.grads == Rest::kSpread && plan_.placement.replicas > 1)
        reduce(index, shard_numel(layout), ActionAxis::kReplicate);
      pending_[flat].reset();
      if (!plan_.overlap) land();
    }
  }

  // The reduction that is under way is over.
  void land() {
    if (flying_.buffer == 0) return;
    ledger_.book(Holding::kTemporaries, -flying_.pieces);
    free_buffers_.push_back(flying_.buffer);
    flying_ = {};
  }

  void collective(ActionKind kind, int unit, std::int64_t bytes, ActionAxis axis = ActionAxis::kShard) {
    end();
    replay_.actions.push_back({.kind = kind, .unit = unit, .micro = micro_, .bytes = bytes, .axis = axis});
  }
  void begin(ActionKind kind, int unit) {
    end();
    replay_.actions.push_back(
        {.kind = kind, .unit = unit, .micro = micro_, .bytes = 0, .work_begin = tape_.work().size()});
    open_ = true;
  }
  void end() {
    if (!open_) return;
    open_ = false;
    Action& action = replay_.actions.back();
    action.work_end = tape_.work().size();
    if (action.work_begin == action.work_end) replay_.actions.pop_back();
  }

  const RunPlan& plan_;
  bool isolated_, adapters_drop_;
  Ledger& ledger_;
  GhostTape& tape_;
  StepReplay& replay_;
  std::int64_t compute_size_;
  bool sharded_params_, copied_, whole_grads_;
  std::vector<UnitState> units_;
  std::vector<std::size_t> slots_of_param_;  // flat buffer of each parameter
  std::vector<std::int64_t> free_buffers_;   // elements
  std::vector<std::optional<std::int64_t>> pending_;
  struct Flying {
    std::int64_t buffer = 0;  // elements
    std::int64_t pieces = 0;  // bytes of the other ranks' pieces, and of a copy in 16 bits
  } flying_;
  UnitOrder order_;
  int expected_ = -1;  // gathered, or being gathered, before anybody holds it
  std::int64_t slot_bytes_ = 0;
  int free_slots_ = 0;
  int micro_ = 0;
  bool open_ = false;
};

}  // namespace

std::string_view action_name(ActionKind kind) {
  static constexpr std::array<std::string_view, 7> kNames{"forward",        "loss",    "backward", "all_gather",
                                                          "reduce_scatter", "barrier", "update"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::int64_t StepReplay::peak_bytes() const { return std::max({peak.total, load_peak, export_peak}); }

StepReplay replay_step(const RunPlan& plan, const formats::HfConfig& config, const ReplayOptions& options) {
  const bool isolated = options.isolated;
  StepReplay replay;
  Ledger ledger;
  GhostTape tape(ledger);
  GhostEngine engine(plan, isolated, options.adapters_drop, ledger, tape, replay);
  if (options.background_save) {
    ledger.book(Holding::kSnapshot, snapshot_bytes(plan));
    replay.export_peak += snapshot_bytes(plan);
  }
  const Holding before = tape.set_holding(Holding::kTemporaries);
  const std::int64_t table_bytes = model_table_bytes(config, plan, isolated);
  const Ghost tables = tape.empty(std::max<std::int64_t>(table_bytes, 1), DType::kU8);
  tape.set_holding(before);
  if (plan.ranks > 1) {  // slots and buffers grow in the first step and stay: what counts is a step that finds them
    engine.micro_step(config, 0);
    replay.actions.clear();
    tape.forget_work();
    ledger.forget();
  }
  for (int micro = 0; micro < std::min<std::int64_t>(plan.accumulation, 2); ++micro) engine.micro_step(config, micro);
  engine.finish_window();
  replay.states = ledger.now();
  replay.states.label = "between steps";
  replay.timeline = ledger.timeline();
  replay.peak = ledger.peak();
  replay.work = tape.work();
  return replay;
}

}  // namespace intarsia::plan
