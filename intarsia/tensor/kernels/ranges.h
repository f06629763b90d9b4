// Small elementwise operations over contiguous memory, of which LAMB, Adafactor, Muon, the moving average and 16-bit
// state are made. Every element gets the same bits wherever it lies.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace intarsia::tensor {

// to = from * factor.
void scale_range(float* to, const float* from, float factor, std::int64_t numel);
// to = to * keep + from * add.
void mix_range(float* to, float keep, const float* from, float add, std::int64_t numel);

// Moments of Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2 with g = grad_scale * grad.
void moments_range(const float* grad, float grad_scale, float* moment1, double beta1, float* moment2, double beta2,
                   std::int64_t numel);
// out = m / (sqrt(v) + eps) + weight_decay * p.
void lamb_direction(const float* param, const float* moment1, const float* moment2, float eps, float weight_decay,
                    float* out, std::int64_t numel);

// variance = keep * variance + (1 - keep) * g^2 with g = grad_scale * grad.
void variance_range(const float* grad, float grad_scale, float* variance, double keep, std::int64_t numel);
// out = g / sqrt(max(variance, floor)).
void over_root(const float* grad, float grad_scale, const float* variance, float floor, float* out, std::int64_t numel);

// bf16 to fp32 is exact; back it is rounded to nearest, ties to even.
void widen_range(const c10::BFloat16* from, float* to, std::int64_t numel);
void narrow_range(const float* from, c10::BFloat16* to, std::int64_t numel);

}  // namespace intarsia::tensor
