#include "intarsia/tensor/kernels/adagrad.h"

#include <cmath>

#include "intarsia/tensor/kernels/simd.h"

namespace intarsia::tensor {
namespace {

struct Scalars {
  float lr, eps, l2, grad_scale;
};

INTARSIA_SIMD void update_range(float* __restrict param, const float* __restrict grad, float* __restrict sum,
                                std::int64_t numel, const Scalars& s) {
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = grad[i] * s.grad_scale + s.l2 * param[i];
    const float total = sum[i] + g * g;
    sum[i] = total;
    param[i] = param[i] - s.lr * (g / (std::sqrt(total) + s.eps));
  }
}

}  // namespace

void adagrad_update(float* param, const float* grad, float* sum, std::int64_t numel, const AdagradStep& step) {
  update_range(param, grad, sum, numel,
               {static_cast<float>(step.lr), static_cast<float>(step.eps), static_cast<float>(step.weight_decay),
                step.grad_scale});
}

}  // namespace intarsia::tensor
