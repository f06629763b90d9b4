#include "intarsia/train/profile.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/nn/recompute/recompute.h"

namespace intarsia::train {

void StepProfile::phase(const char* name) {
  const double now = comm::steady_seconds();
  if (in_phase_) {
    // The first unit's input needs no gradient, so that nothing says when its backward ends.
    for (Span& span : open_units_) {
      span.end = now;
      spans_.push_back(std::move(span));
    }
    open_units_.clear();
    phase_.end = now;
    spans_.push_back(phase_);
  }
  phase_ = {.kind = Span::Kind::kPhase, .name = name, .begin = now};
  in_phase_ = true;
}

void StepProfile::end_step() {
  phase("");
  in_phase_ = false;
  ++steps_;
  recomputed_ = nn::recompute_time().seconds - recomputed_before_;
}

nn::UnitEvents* StepProfile::watch(nn::UnitEvents& engine) {
  engine_ = &engine;
  return this;
}

void StepProfile::collective(const comm::TimedOp& op) {
  spans_.push_back({.kind = Span::Kind::kCollective,
                    .name = concat(comm::op_name(op.op), op.tag.unit.empty() ? "" : " ", op.tag.unit,
                                   op.tag.phase.empty() ? "" : concat(" (", op.tag.phase, ")")),
                    .begin = op.begin,
                    .end = op.end,
                    .waited = op.waited,
                    .bytes = op.bytes,
                    .ranks = op.ranks,
                    .op = op.op});
}

void StepProfile::clear() {
  spans_.clear();
  steps_ = 0;
  recomputed_ = 0;
  recomputed_before_ = nn::recompute_time().seconds;
}

void StepProfile::open(Span::Kind kind, int unit) {
  open_units_.push_back({.kind = kind,
                         .name = plan_.model.units[static_cast<std::size_t>(unit)].name,
                         .unit = unit,
                         .begin = comm::steady_seconds()});
}

void StepProfile::close(Span::Kind kind, int unit) {
  const auto found = std::ranges::find_if(open_units_.rbegin(), open_units_.rend(),
                                          [&](const Span& span) { return span.kind == kind && span.unit == unit; });
  if (found == open_units_.rend()) return;
  found->end = comm::steady_seconds();
  spans_.push_back(std::move(*found));
  open_units_.erase(std::next(found).base());
}

WatchedAxes::WatchedAxes(const comm::DataAxes& axes, StepProfile* profile) : inner_(axes) {
  if (profile == nullptr) return;
  const auto sink = [profile](const comm::TimedOp& op) { profile->collective(op); };
  world_.emplace(axes.world, sink);
  if (&axes.shard != &axes.world) shard_.emplace(axes.shard, sink);
  if (axes.replicate != nullptr) replicate_.emplace(*axes.replicate, sink);
}

comm::DataAxes WatchedAxes::axes() {
  if (!world_) return inner_;
  if (!shard_ && !replicate_) return {*world_};
  return {*world_, shard_ ? *shard_ : *world_, replicate_ ? &*replicate_ : nullptr};
}

void StepProfile::pre_forward(int unit) {
  engine_->pre_forward(unit);
  open(Span::Kind::kForward, unit);
}

void StepProfile::post_forward(int unit, bool needs_backward) {
  close(Span::Kind::kForward, unit);
  engine_->post_forward(unit, needs_backward);
}

void StepProfile::pre_backward(int unit) {
  engine_->pre_backward(unit);
  open(Span::Kind::kBackward, unit);
}

void StepProfile::post_backward(int unit) {
  close(Span::Kind::kBackward, unit);
  engine_->post_backward(unit);
}

}  // namespace intarsia::train
