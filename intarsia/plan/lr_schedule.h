// Learning rate of each optimizer update, as a pure function of the update's number. Without torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/config/train_config.h"

namespace intarsia::plan {

// The kinds, with DeepSpeed's (0.19) and Hugging Face's counting; docs/schedules.md has the table and formulas.
enum class ScheduleKind {
  kConstant,  // always base_lr
  kWarmupLR,  // DeepSpeed: update 1 uses min, update n >= 2 uses t = n - 2
  kWarmupDecayLR,
  kWarmupCosineLR,
  kHfConstantWithWarmup,  // Hugging Face: update n uses the multiplier at n - 1
  kHfLinear,
  kHfCosine,
  kHfCosineWithMinLr,
  kList,         // intarsia.lr_schedule: update n uses list[n - 1]; after its end the last value
  kOneCycle,     // DeepSpeed; also drives beta1
  kLrRangeTest,  // DeepSpeed
};

struct LrSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double base_lr = 1e-3;  // the optimizer's lr
  // DeepSpeed's parameters.
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
  bool log_warmup = true;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  // Hugging Face's.
  double min_lr_ratio = 0;  // cosine_with_min_lr: floor / base
  double num_cycles = 0.5;
  std::vector<double> list;
  // OneCycle: up in first_steps, down in second_steps, then decay.
  double cycle_min_lr = 0, cycle_max_lr = 1e-3, decay_lr_rate = 0;
  std::int64_t first_steps = 2000, second_steps = 2000, first_stairs = 0, second_stairs = 0, decay_steps = 0;
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0;
  // LRRangeTest.
  double range_min_lr = 1e-3, range_step_rate = 1;
  std::int64_t range_steps = 2000;
  bool range_staircase = false;

  // The rate of the update-th applied optimizer update, counted from 1. Skipped updates do not count.
  double lr_at_update(std::int64_t update) const;
  // The first-moment decay that OneCycle sets for that update. Meaningless for the other kinds.
  double beta1_at_update(std::int64_t update) const;
};

// The schedule that a configuration asks for. Errors: kConfig for a type that is not in the table.
LrSchedule schedule_of(const config::TrainConfig& config);

}  // namespace intarsia::plan
