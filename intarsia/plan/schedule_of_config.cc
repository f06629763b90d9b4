#include <map>

#include "intarsia/base/error.h"
#include "intarsia/plan/lr_schedule.h"

namespace intarsia::plan {
namespace {

Ramp ramp_of(const std::string& word) {
  return word == "cosine" ? Ramp::kCosine : word == "1-sqrt" ? Ramp::kOneMinusSqrt : Ramp::kLinear;
}

}  // namespace

LrSchedule schedule_of(const config::TrainConfig& config) {
  static const std::map<std::string, ScheduleKind> kKinds = {
      {"", ScheduleKind::kConstant},
      {"constant", ScheduleKind::kConstant},
      {"WarmupLR", ScheduleKind::kWarmupLR},
      {"WarmupDecayLR", ScheduleKind::kWarmupDecayLR},
      {"WarmupCosineLR", ScheduleKind::kWarmupCosineLR},
      {"OneCycle", ScheduleKind::kOneCycle},
      {"LRRangeTest", ScheduleKind::kLrRangeTest},
      {"constant_with_warmup", ScheduleKind::kHfConstantWithWarmup},
      {"linear", ScheduleKind::kHfLinear},
      {"cosine", ScheduleKind::kHfCosine},
      {"cosine_with_min_lr", ScheduleKind::kHfCosineWithMinLr},
      {"cosine_with_restarts", ScheduleKind::kHfCosineWithRestarts},
      {"polynomial", ScheduleKind::kHfPolynomial},
      {"inverse_sqrt", ScheduleKind::kHfInverseSqrt},
      {"warmup_stable_decay", ScheduleKind::kHfWarmupStableDecay},
      {"list", ScheduleKind::kList},
  };
  const config::SchedulerConfig& from = config.scheduler;
  const auto kind = kKinds.find(from.type);
  INTARSIA_CHECK(kConfig, kind != kKinds.end(), "scheduler ", from.type, " has no formula here; see docs/schedules.md");
  LrSchedule to;
  to.kind = kind->second;
  to.base_lr = config.optimizer.lr;
  to.warmup_min_lr = from.warmup_min_lr;
  // WarmupLR climbs to the optimizer's lr, WarmupDecayLR to 1e-3: DeepSpeed's defaults differ.
  to.warmup_max_lr =
      from.warmup_max_lr.value_or(to.kind == ScheduleKind::kWarmupLR ? config.optimizer.lr : to.warmup_max_lr);
  to.warmup_min_ratio = from.warmup_min_ratio;
  to.cos_min_ratio = from.cos_min_ratio;
  to.log_warmup = from.log_warmup;
  to.warmup_steps = from.warmup_steps;
  // A schedule that ends with the run and was not told where: the run's own number of updates.
  to.total_steps = from.total_steps > 0 ? from.total_steps : config.run.steps;
  to.min_lr_ratio = from.min_lr_ratio;
  to.num_cycles = from.num_cycles.value_or(to.kind == ScheduleKind::kHfCosineWithRestarts ? 1 : to.num_cycles);
  to.power = from.power;
  to.lr_end = from.lr_end;
  to.timescale = from.timescale;
  to.stable_steps = from.num_stable_steps.value_or(-1);
  to.fall_steps = from.num_decay_steps;
  to.warmup_ramp = ramp_of(from.warmup_type);
  to.fall_ramp = ramp_of(from.decay_type);
  to.list = from.list;
  to.cycle_min_lr = from.cycle_min_lr;
  to.cycle_max_lr = from.cycle_max_lr;
  to.decay_lr_rate = from.decay_lr_rate;
  to.first_steps = from.cycle_first_steps;
  to.second_steps = from.cycle_second_steps;
  to.first_stairs = from.cycle_first_stairs;
  to.second_stairs = from.cycle_second_stairs;
  to.decay_steps = from.decay_steps;
  to.cycle_momentum = to.kind == ScheduleKind::kOneCycle && from.cycle_momentum;
  to.cycle_min_mom = from.cycle_min_mom;
  to.cycle_max_mom = from.cycle_max_mom;
  to.decay_mom_rate = from.decay_mom_rate;
  to.range_min_lr = from.range_min_lr;
  to.range_step_rate = from.range_step_rate;
  to.range_steps = from.range_steps;
  to.range_staircase = from.range_staircase;
  return to;
}

}  // namespace intarsia::plan
