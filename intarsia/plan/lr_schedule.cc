#include "intarsia/plan/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

// Share of DeepSpeed's warm-up that is done at its counter t (0 <= t < steps). steps is at least 2, so that the
// logarithm never divides by zero.
double warmup_share(const LrSchedule& s, std::int64_t t, std::int64_t steps) {
  if (s.log_warmup) return std::log(static_cast<double>(t + 1)) / std::log(static_cast<double>(steps));
  return static_cast<double>(t) / static_cast<double>(steps);
}

double warmup_decay(const LrSchedule& s, std::int64_t t) {
  const std::int64_t steps = std::max<std::int64_t>(2, s.warmup_steps);
  double share = 1;
  if (t < 0) return s.warmup_min_lr;
  if (t < steps) {
    share = warmup_share(s, t, steps);
  } else if (s.kind == ScheduleKind::kWarmupDecayLR) {
    share = std::max(0.0, static_cast<double>(s.total_steps - t) /
                              static_cast<double>(std::max<std::int64_t>(1, s.total_steps - steps)));
  }
  return s.warmup_min_lr + (s.warmup_max_lr - s.warmup_min_lr) * share;
}

double warmup_cosine(const LrSchedule& s, std::int64_t t) {
  const std::int64_t steps = std::max<std::int64_t>(2, s.warmup_steps);
  if (t < 0) return 0;  // DeepSpeed starts at exactly 0, not at warmup_min_ratio
  if (t < steps) return s.base_lr * (s.warmup_min_ratio + (1 - s.warmup_min_ratio) * warmup_share(s, t, steps));
  const double progress = std::min(
      1.0, static_cast<double>(t - steps + 1) / static_cast<double>(std::max<std::int64_t>(1, s.total_steps - steps)));
  return s.base_lr * (s.cos_min_ratio + (1 - s.cos_min_ratio) * (1 + std::cos(std::numbers::pi * progress)) / 2);
}

double at_least_one(std::int64_t n) { return static_cast<double>(std::max<std::int64_t>(1, n)); }

double half_wave(double turns) { return 0.5 * (1 + std::cos(std::numbers::pi * turns)); }

// warmup_stable_decay's multiplier at its counter.
double stable_share(const LrSchedule& s, std::int64_t current) {
  const auto floored = [&](double share) { return std::max(0.0, share * (1 - s.min_lr_ratio) + s.min_lr_ratio); };
  const std::int64_t stable = s.stable_steps >= 0 ? s.stable_steps : s.total_steps - s.warmup_steps - s.fall_steps;
  if (current < s.warmup_steps) {
    const double progress = static_cast<double>(current) / at_least_one(s.warmup_steps);
    return floored(s.warmup_ramp == Ramp::kLinear   ? progress
                   : s.warmup_ramp == Ramp::kCosine ? 1 - half_wave(progress)
                                                    : 1 - std::sqrt(1 - progress));
  }
  const std::int64_t fallen = current - s.warmup_steps - stable;
  if (fallen < 0) return 1;
  if (fallen >= s.fall_steps) return s.min_lr_ratio;
  const double progress = static_cast<double>(fallen) / at_least_one(s.fall_steps);
  return floored(s.fall_ramp == Ramp::kLinear   ? 1 - progress
                 : s.fall_ramp == Ramp::kCosine ? half_wave(s.num_cycles * 2 * progress)
                                                : 1 - std::sqrt(progress));
}

// Hugging Face's multiplier at its counter `current` (0 for the first update).
double hf_share(const LrSchedule& s, std::int64_t current) {
  if (s.kind == ScheduleKind::kHfWarmupStableDecay) return stable_share(s, current);
  if (current < s.warmup_steps) return static_cast<double>(current) / at_least_one(s.warmup_steps);
  const double rest = at_least_one(s.total_steps - s.warmup_steps);
  if (s.kind == ScheduleKind::kHfInverseSqrt) {
    const auto scale = static_cast<double>(s.timescale > 0      ? s.timescale
                                           : s.warmup_steps > 0 ? s.warmup_steps
                                                                : 10'000);
    return 1 / std::sqrt((static_cast<double>(current - s.warmup_steps) + scale) / scale);
  }
  if (s.kind == ScheduleKind::kHfPolynomial) {
    if (current > s.total_steps) return s.lr_end / s.base_lr;
    const double left = 1 - static_cast<double>(current - s.warmup_steps) / rest;
    return ((s.base_lr - s.lr_end) * std::pow(left, s.power) + s.lr_end) / s.base_lr;
  }
  if (s.kind == ScheduleKind::kHfConstantWithWarmup) return 1;
  if (s.kind == ScheduleKind::kHfLinear) return std::max(0.0, static_cast<double>(s.total_steps - current) / rest);
  const double progress = static_cast<double>(current - s.warmup_steps) / rest;
  if (s.kind == ScheduleKind::kHfCosineWithRestarts) {
    const double turns = s.num_cycles * progress;
    return progress >= 1 ? 0 : half_wave(turns - std::floor(turns));
  }
  const double wave = half_wave(s.num_cycles * 2 * progress);
  if (s.kind == ScheduleKind::kHfCosine) return std::max(0.0, wave);
  return std::max(0.0, wave * (1 - s.min_lr_ratio) + s.min_lr_ratio);
}

// Height of OneCycle's triangle at counter t, 0 to 1 and back.
double cycle_height(const LrSchedule& s, std::int64_t t) {
  const double total = static_cast<double>(s.first_steps + s.second_steps);
  const double whole = static_cast<double>(t + 1) / total;
  const double x = whole - std::floor(whole);
  const double first = static_cast<double>(s.first_steps) / total;
  const bool rising = x <= first;
  const double height = rising ? x / first : (x - 1) / (first - 1);
  const auto stairs = static_cast<double>(rising ? s.first_stairs : s.second_stairs);
  return stairs > 0 ? std::floor(height * stairs) / stairs : height;
}

// Decay intervals of OneCycle at counter t, or a negative number while the cycle runs.
double decay_intervals(const LrSchedule& s, std::int64_t t) {
  const std::int64_t after = t - (s.first_steps + s.second_steps) + 1;
  if (after <= 0) return -1;
  return s.decay_steps > 0 ? static_cast<double>(after) / static_cast<double>(s.decay_steps) : 0;
}

double one_cycle(const LrSchedule& s, std::int64_t t) {
  if (t < 0) return s.cycle_min_lr;
  const double decay = decay_intervals(s, t);
  if (decay >= 0) return s.cycle_min_lr / (1 + s.decay_lr_rate * decay);
  return s.cycle_min_lr + (s.cycle_max_lr - s.cycle_min_lr) * cycle_height(s, t);
}

double range_test(const LrSchedule& s, std::int64_t t) {
  double intervals = static_cast<double>(t + 1) / static_cast<double>(s.range_steps);
  if (s.range_staircase) intervals = std::floor(intervals);
  return s.range_min_lr * (1 + s.range_step_rate * intervals);
}

}  // namespace

double LrSchedule::lr_at_update(std::int64_t update) const {
  INTARSIA_INVARIANT(update >= 1, "updates are counted from 1, got ", update);
  // DeepSpeed sets the rate of t = -1 at construction, and steps its counter after each applied update.
  const std::int64_t t = update - 2;
  switch (kind) {
    case ScheduleKind::kConstant:
      return base_lr;
    case ScheduleKind::kWarmupLR:
    case ScheduleKind::kWarmupDecayLR:
      return warmup_decay(*this, t);
    case ScheduleKind::kWarmupCosineLR:
      return warmup_cosine(*this, t);
    case ScheduleKind::kHfConstantWithWarmup:
    case ScheduleKind::kHfLinear:
    case ScheduleKind::kHfCosine:
    case ScheduleKind::kHfCosineWithMinLr:
    case ScheduleKind::kHfCosineWithRestarts:
    case ScheduleKind::kHfPolynomial:
    case ScheduleKind::kHfInverseSqrt:
    case ScheduleKind::kHfWarmupStableDecay:
      return base_lr * hf_share(*this, update - 1);
    case ScheduleKind::kList:
      INTARSIA_CHECK(kConfig, !list.empty(), "intarsia.lr_schedule is an empty list; at least one rate is needed");
      return list[std::min(static_cast<std::size_t>(update - 1), list.size() - 1)];
    case ScheduleKind::kOneCycle:
      return one_cycle(*this, t);
    case ScheduleKind::kLrRangeTest:
      return range_test(*this, t);
  }
  fail(ErrorKind::kInternal, "schedule kind ", static_cast<int>(kind));
}

double LrSchedule::beta1_at_update(std::int64_t update) const {
  const std::int64_t t = update - 2;
  if (t < 0) return cycle_min_mom;
  const double decay = decay_intervals(*this, t);
  if (decay >= 0) return cycle_max_mom * (1 + decay_mom_rate * decay);
  return cycle_max_mom - (cycle_max_mom - cycle_min_mom) * cycle_height(*this, t);
}

bool LrSchedule::ends_with_the_run() const {
  switch (kind) {
    case ScheduleKind::kWarmupDecayLR:
    case ScheduleKind::kWarmupCosineLR:
    case ScheduleKind::kHfLinear:
    case ScheduleKind::kHfCosine:
    case ScheduleKind::kHfCosineWithMinLr:
    case ScheduleKind::kHfCosineWithRestarts:
    case ScheduleKind::kHfPolynomial:
      return true;
    case ScheduleKind::kHfWarmupStableDecay:
      return stable_steps < 0;
    case ScheduleKind::kConstant:
    case ScheduleKind::kWarmupLR:
    case ScheduleKind::kHfConstantWithWarmup:
    case ScheduleKind::kHfInverseSqrt:
    case ScheduleKind::kList:
    case ScheduleKind::kOneCycle:
    case ScheduleKind::kLrRangeTest:
      return false;
  }
  return false;
}

}  // namespace intarsia::plan
