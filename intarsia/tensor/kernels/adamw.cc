#include "intarsia/tensor/kernels/adamw.h"

#include <cmath>

#include "intarsia/tensor/kernels/simd.h"

namespace intarsia::tensor {
namespace {

INTARSIA_SIMD void update_range(float* __restrict param, const float* __restrict grad, float* __restrict moment1,
                                float* __restrict moment2, std::int64_t numel, const AdamScalars& s) {
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = grad[i] * s.grad_scale + s.l2 * param[i];
    const float m = s.beta1 * moment1[i] + s.one_minus_beta1 * g;
    const float v = s.beta2 * moment2[i] + s.one_minus_beta2 * (g * g);
    moment1[i] = m;
    moment2[i] = v;
    const float denominator = std::sqrt(v) / s.root_correction + s.eps;
    param[i] = param[i] * s.decay - s.step_size * (m / denominator);
  }
}

}  // namespace

AdamScalars adam_scalars(const AdamStep& step) {
  const auto k = static_cast<double>(step.update);
  const double correction1 = step.bias_correction ? 1 - std::pow(step.beta1, k) : 1;
  const double correction2 = step.bias_correction ? 1 - std::pow(step.beta2, k) : 1;
  return {
      .beta1 = static_cast<float>(step.beta1),
      .one_minus_beta1 = static_cast<float>(1 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .one_minus_beta2 = static_cast<float>(1 - step.beta2),
      .eps = static_cast<float>(step.eps),
      .decay = step.decoupled_decay ? static_cast<float>(1 - step.lr * step.weight_decay) : 1.0F,
      .l2 = step.decoupled_decay ? 0.0F : static_cast<float>(step.weight_decay),
      .step_size = static_cast<float>(step.lr / correction1),
      .root_correction = static_cast<float>(std::sqrt(correction2)),
      .grad_scale = step.grad_scale,
  };
}

void adam_update(float* param, const float* grad, float* moment1, float* moment2, std::int64_t numel,
                 const AdamStep& step) {
  update_range(param, grad, moment1, moment2, numel, adam_scalars(step));
}

}  // namespace intarsia::tensor
