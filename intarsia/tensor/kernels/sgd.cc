#include "intarsia/tensor/kernels/sgd.h"

#include "intarsia/tensor/kernels/simd.h"

namespace intarsia::tensor {
namespace {

struct Scalars {
  float lr, momentum, fresh, l2, grad_scale, look_ahead, buffer_share;
};

INTARSIA_SIMD void plain_range(float* __restrict param, const float* __restrict grad, std::int64_t numel,
                               const Scalars& s) {
  for (std::int64_t i = 0; i < numel; ++i) param[i] = param[i] - s.lr * (grad[i] * s.grad_scale + s.l2 * param[i]);
}

// The direction is look_ahead * g + buffer_share * buffer: (0, 1) plain, (1, momentum) nesterov.
INTARSIA_SIMD void momentum_range(float* __restrict param, const float* __restrict grad, float* __restrict buffer,
                                  std::int64_t numel, const Scalars& s) {
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = grad[i] * s.grad_scale + s.l2 * param[i];
    const float b = s.momentum * buffer[i] + s.fresh * g;
    buffer[i] = b;
    param[i] = param[i] - s.lr * (s.look_ahead * g + s.buffer_share * b);
  }
}

}  // namespace

void sgd_update(float* param, const float* grad, float* buffer, std::int64_t numel, const SgdStep& step) {
  const Scalars scalars{.lr = static_cast<float>(step.lr),
                        .momentum = step.first ? 0.0F : static_cast<float>(step.momentum),
                        .fresh = step.first ? 1.0F : static_cast<float>(1 - step.dampening),
                        .l2 = static_cast<float>(step.weight_decay),
                        .grad_scale = step.grad_scale,
                        .look_ahead = step.nesterov ? 1.0F : 0.0F,
                        .buffer_share = step.nesterov ? static_cast<float>(step.momentum) : 1.0F};
  if (step.momentum == 0) return plain_range(param, grad, numel, scalars);
  momentum_range(param, grad, buffer, numel, scalars);
}

}  // namespace intarsia::tensor
