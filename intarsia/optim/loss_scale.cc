#include "intarsia/optim/loss_scale.h"

#include <algorithm>

namespace intarsia::optim {

LossScale::LossScale(const plan::LossScalePlan& plan)
    : plan_(plan), state_{.scale = plan.initial, .hysteresis_left = plan.hysteresis} {}

bool LossScale::update(bool overflow) {
  if (!plan_.dynamic) return !overflow;
  bool can_fall = true;
  if (overflow) {
    if (plan_.hysteresis == 1 || state_.hysteresis_left == 1) {
      can_fall = state_.scale > plan_.min;
      state_.scale = std::max(state_.scale / 2, plan_.min);
    } else {
      --state_.hysteresis_left;
    }
    state_.last_overflow = state_.iteration;
  } else {
    if (plan_.consecutive_hysteresis) state_.hysteresis_left = plan_.hysteresis;
    const std::int64_t stable = state_.iteration - state_.last_overflow - 1;
    if (stable > 0 && stable % plan_.window == 0) {
      if (!plan_.consecutive_hysteresis) state_.hysteresis_left = plan_.hysteresis;
      state_.scale *= 2;
    }
  }
  ++state_.iteration;
  return can_fall;
}

}  // namespace intarsia::optim
