#include "intarsia/tensor/kernels/ranges.h"

#include <cmath>

#include "intarsia/tensor/kernels/simd.h"

namespace intarsia::tensor {
namespace {

struct MomentScalars {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
};

INTARSIA_SIMD void moments_body(const float* __restrict grad, float* __restrict moment1, float* __restrict moment2,
                                std::int64_t numel, const MomentScalars& s) {
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = grad[i] * s.grad_scale;
    moment1[i] = s.beta1 * moment1[i] + s.one_minus_beta1 * g;
    moment2[i] = s.beta2 * moment2[i] + s.one_minus_beta2 * (g * g);
  }
}

INTARSIA_SIMD void variance_body(const float* __restrict grad, float grad_scale, float* __restrict variance, float keep,
                                 float fresh, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = grad[i] * grad_scale;
    variance[i] = keep * variance[i] + fresh * (g * g);
  }
}

INTARSIA_SIMD void scale_body(float* __restrict to, const float* __restrict from, float factor, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = from[i] * factor;
}

INTARSIA_SIMD void mix_body(float* __restrict to, float keep, const float* __restrict from, float add,
                            std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = to[i] * keep + from[i] * add;
}

INTARSIA_SIMD void lamb_body(const float* __restrict param, const float* __restrict moment1,
                             const float* __restrict moment2, float eps, float weight_decay, float* __restrict out,
                             std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i)
    out[i] = moment1[i] / (std::sqrt(moment2[i]) + eps) + weight_decay * param[i];
}

INTARSIA_SIMD void over_root_body(const float* __restrict grad, float grad_scale, const float* __restrict variance,
                                  float floor, float* __restrict out, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i)
    out[i] = grad[i] * grad_scale / std::sqrt(variance[i] > floor ? variance[i] : floor);
}

}  // namespace

void scale_range(float* to, const float* from, float factor, std::int64_t numel) {
  scale_body(to, from, factor, numel);
}

void mix_range(float* to, float keep, const float* from, float add, std::int64_t numel) {
  mix_body(to, keep, from, add, numel);
}

void moments_range(const float* grad, float grad_scale, float* moment1, double beta1, float* moment2, double beta2,
                   std::int64_t numel) {
  moments_body(grad, moment1, moment2, numel,
               {grad_scale, static_cast<float>(beta1), static_cast<float>(1 - beta1), static_cast<float>(beta2),
                static_cast<float>(1 - beta2)});
}

void lamb_direction(const float* param, const float* moment1, const float* moment2, float eps, float weight_decay,
                    float* out, std::int64_t numel) {
  lamb_body(param, moment1, moment2, eps, weight_decay, out, numel);
}

void variance_range(const float* grad, float grad_scale, float* variance, double keep, std::int64_t numel) {
  variance_body(grad, grad_scale, variance, static_cast<float>(keep), static_cast<float>(1 - keep), numel);
}

void over_root(const float* grad, float grad_scale, const float* variance, float floor, float* out,
               std::int64_t numel) {
  over_root_body(grad, grad_scale, variance, floor, out, numel);
}

void widen_range(const c10::BFloat16* from, float* to, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = static_cast<float>(from[i]);
}

void narrow_range(const float* from, c10::BFloat16* to, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = c10::BFloat16(from[i]);
}

}  // namespace intarsia::tensor
