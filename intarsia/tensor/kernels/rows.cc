#include "intarsia/tensor/kernels/rows.h"

#include <algorithm>

#include "intarsia/tensor/kernels/kernel_set.h"
#include "intarsia/tensor/kernels/parallel.h"

namespace intarsia::tensor {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements that are worth a thread

std::int64_t grain_of(std::int64_t width) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(width, 1));
}

}  // namespace

void rms_norm(const void* x, const void* weight, void* y, float* scale, const NormShape& shape, bool bf16) {
  for_each_range(shape.rows, grain_of(shape.width), [&](std::int64_t begin, std::int64_t end) {
    kernels().rms_norm(x, weight, y, scale, shape, bf16, begin, end);
  });
}

void rms_norm_input_gradient(const void* grad, const void* x, const void* weight, const float* scale, void* x_grad,
                             const NormShape& shape, bool bf16) {
  for_each_range(shape.rows, grain_of(shape.width), [&](std::int64_t begin, std::int64_t end) {
    kernels().rms_norm_input_gradient(grad, x, weight, scale, x_grad, shape, bf16, begin, end);
  });
}

void rms_norm_weight_gradient(const void* grad, const void* x, const float* scale, void* weight_grad,
                              const NormShape& shape, bool bf16) {
  for_each_range(shape.width, grain_of(shape.rows), [&](std::int64_t begin, std::int64_t end) {
    kernels().rms_norm_weight_gradient(grad, x, scale, weight_grad, shape, bf16, begin, end);
  });
}

void rotary(const void* x, const HeadStrides& x_strides, const void* cos, const void* sin, void* to,
            const HeadStrides& to_strides, const RotaryShape& shape, bool back, bool bf16) {
  for_each_range(shape.batch * shape.length, grain_of(shape.heads * shape.head_dim),
                 [&](std::int64_t begin, std::int64_t end) {
                   kernels().rotary(x, x_strides, cos, sin, to, to_strides, shape, back, bf16, begin, end);
                 });
}

void swiglu(const void* gate, const void* up, void* out, std::int64_t numel, bool bf16) {
  for_each_range(numel, kGrain,
                 [&](std::int64_t begin, std::int64_t end) { kernels().swiglu(gate, up, out, bf16, begin, end); });
}

void swiglu_gradients(const void* grad, const void* gate, const void* up, void* gate_grad, void* up_grad,
                      std::int64_t numel, bool bf16) {
  for_each_range(numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().swiglu_gradients(grad, gate, up, gate_grad, up_grad, bf16, begin, end);
  });
}

void add_to_fp32(float* to, const void* from, std::int64_t numel, bool bf16, bool fresh) {
  for_each_range(numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().add_to_fp32(to, from, bf16, fresh, begin, end);
  });
}

}  // namespace intarsia::tensor
