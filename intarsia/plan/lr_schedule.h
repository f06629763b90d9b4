// Learning rate of each optimizer update, as a pure function of the update's number. Without torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/config/train_config.h"

namespace intarsia::plan {

// How Hugging Face's warmup_stable_decay rises and falls.
enum class Ramp { kLinear, kCosine, kOneMinusSqrt };

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
  kHfCosineWithRestarts,
  kHfPolynomial,
  kHfInverseSqrt,
  kHfWarmupStableDecay,
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
  double min_lr_ratio = 0;  // cosine_with_min_lr, warmup_stable_decay: floor / base
  double num_cycles = 0.5;  // waves; cosine_with_restarts: 1 and more
  double power = 1, lr_end = 1e-7;
  std::int64_t timescale = 0;      // inverse_sqrt; 0: the warm-up, or 10,000 without one
  std::int64_t stable_steps = -1;  // warmup_stable_decay; -1: what warm-up and fall leave of the run
  std::int64_t fall_steps = 0;
  Ramp warmup_ramp = Ramp::kLinear, fall_ramp = Ramp::kCosine;
  std::vector<double> list;
  // OneCycle: up in first_steps, down in second_steps, then decay.
  double cycle_min_lr = 0, cycle_max_lr = 1e-3, decay_lr_rate = 0;
  std::int64_t first_steps = 2000, second_steps = 2000, first_stairs = 0, second_stairs = 0, decay_steps = 0;
  bool cycle_momentum = false;  // beta1 follows beta1_at_update
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0;
  // LRRangeTest.
  double range_min_lr = 1e-3, range_step_rate = 1;
  std::int64_t range_steps = 2000;
  bool range_staircase = false;

  // The rate of the update-th applied optimizer update, counted from 1. Skipped updates do not count.
  double lr_at_update(std::int64_t update) const;
  // The first-moment decay that OneCycle sets for that update. Meaningless for the other kinds.
  double beta1_at_update(std::int64_t update) const;
  // Whether its shape follows total_steps, so that a longer run is another one from its start.
  bool ends_with_the_run() const;
};

// The schedule that a configuration asks for. Errors: kConfig for a type that is not in the table.
LrSchedule schedule_of(const config::TrainConfig& config);

}  // namespace intarsia::plan
