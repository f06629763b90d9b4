// The one place that turns a gradient's sum of squares into a norm and a factor.
#pragma once

#include <cmath>

namespace intarsia::optim {

struct Clipping {
  double norm = 0;    // of the averaged gradient, before clipping
  double factor = 1;  // gradients are multiplied by it
};

// `square_sum` of gradients that must still be multiplied by `average` (loss_divisor / tokens).
// factor = min(1, limit / (norm + 1e-6)); limit 0: off. Source: DeepSpeed 0.19 and torch, clip_grad_norm_.
inline Clipping clip(double square_sum, double average, double limit) {
  Clipping result{.norm = std::sqrt(square_sum) * average};
  if (limit > 0 && result.norm + 1e-6 > limit) result.factor = limit / (result.norm + 1e-6);
  return result;
}

}  // namespace intarsia::optim
