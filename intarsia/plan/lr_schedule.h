// Learning rate of each optimizer update, as a pure function of the update's number. Without torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  kList,  // intarsia.lr_schedule: update n uses list[n - 1]; after its end the last value
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

  // The rate of the update-th applied optimizer update, counted from 1. Skipped updates do not count.
  double lr_at_update(std::int64_t update) const;
};

}  // namespace intarsia::plan
