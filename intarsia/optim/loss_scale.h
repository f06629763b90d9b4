// The loss scale of fp16: keeps small gradients above the smallest 16-bit number and backs off when large ones
// overflow.
#pragma once

#include <cstdint>

#include "intarsia/plan/run_plan.h"

namespace intarsia::optim {

// What a checkpoint keeps of it.
struct LossScaleState {
  double scale = 1;
  std::int64_t hysteresis_left = 0;  // overflows until the scale halves
  std::int64_t iteration = 0;        // optimizer steps so far, skipped ones included
  std::int64_t last_overflow = -1;   // iteration of the last overflow
  bool operator==(const LossScaleState&) const = default;
};

// Dynamic: an overflow lowers the hysteresis, or halves the scale when it is used up; `window` steps without one double
// the scale. Static, and without fp16 (scale 1): never moves.
// Every rank updates its own with the same inputs, so all agree. Source: DeepSpeed 0.19, DynamicLossScaler.
class LossScale {
 public:
  explicit LossScale(const plan::LossScalePlan& plan);

  // What the next backward multiplies the loss by, and its gradients are divided by.
  double scale() const { return state_.scale; }
  // After a step: whether its gradients were not finite. Returns false when the scale cannot fall any more (static, or
  // at its minimum), so that the overflow is the run's own fault.
  bool update(bool overflow);

  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }

 private:
  plan::LossScalePlan plan_;
  LossScaleState state_;
};

}  // namespace intarsia::optim
