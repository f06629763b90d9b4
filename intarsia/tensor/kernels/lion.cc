#include "intarsia/tensor/kernels/lion.h"

#include "intarsia/tensor/kernels/simd.h"

namespace intarsia::tensor {
namespace {

struct Scalars {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, decay, lr, grad_scale;
};

INTARSIA_SIMD void update_range(float* __restrict param, const float* __restrict grad, float* __restrict moment,
                                std::int64_t numel, const Scalars& s) {
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = grad[i] * s.grad_scale;
    const float m = moment[i];
    const float mixed = s.beta1 * m + s.one_minus_beta1 * g;
    const float sign = (mixed > 0 ? 1.0F : 0.0F) - (mixed < 0 ? 1.0F : 0.0F);
    param[i] = param[i] * s.decay - s.lr * sign;
    moment[i] = s.beta2 * m + s.one_minus_beta2 * g;
  }
}

}  // namespace

void lion_update(float* param, const float* grad, float* moment, std::int64_t numel, const LionStep& step) {
  const Scalars scalars{.beta1 = static_cast<float>(step.beta1),
                        .one_minus_beta1 = static_cast<float>(1 - step.beta1),
                        .beta2 = static_cast<float>(step.beta2),
                        .one_minus_beta2 = static_cast<float>(1 - step.beta2),
                        .decay = static_cast<float>(1 - step.lr * step.weight_decay),
                        .lr = static_cast<float>(step.lr),
                        .grad_scale = step.grad_scale};
  update_range(param, grad, moment, numel, scalars);
}

}  // namespace intarsia::tensor
