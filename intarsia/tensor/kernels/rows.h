// Row-wise and elementwise pieces of a transformer block, forward and backward, each in one pass over memory. Pointers
// are to contiguous host memory of float, or of bf16 where `bf16` says so; sums and functions are computed in fp32. In
// bf16 a value is rounded where ATen's chain of operations would round it, so that a forward has ATen's numbers.
// The same bits in any cut of the rows.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

struct NormShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  double eps = 0;
};
// y = weight * (x / sqrt(mean(x^2) + eps)); `scale` [rows] gets the reciprocal root, for the backward.
// Source: Zhang and Sennrich, "Root mean square layer normalization" (arXiv 1910.07467).
void rms_norm(const void* x, const void* weight, void* y, float* scale, const NormShape& shape, bool bf16);
// The gradient of x.
void rms_norm_input_gradient(const void* grad, const void* x, const void* weight, const float* scale, void* x_grad,
                             const NormShape& shape, bool bf16);
// The gradient of weight [width], rounded once.
void rms_norm_weight_gradient(const void* grad, const void* x, const float* scale, void* weight_grad,
                              const NormShape& shape, bool bf16);

// Elements [b, t, n, d] with strides in elements; d is contiguous.
struct HeadStrides {
  std::int64_t batch = 0, place = 0, head = 0;
};
struct RotaryShape {
  std::int64_t batch = 0, length = 0, heads = 0, head_dim = 0;
  std::int64_t table_stride = 0;  // from one sample's tables to the next's: length * head_dim, or 0 where all share one
};
// Turns pairs (j, j + head_dim / 2) by their place's angle: to = x cos + turned(x) sin; `back` turns the other way,
// which is the gradient. Source: Su et al., "RoFormer" (arXiv 2104.09864).
void rotary(const void* x, const HeadStrides& x_strides, const void* cos, const void* sin, void* to,
            const HeadStrides& to_strides, const RotaryShape& shape, bool back, bool bf16);

// out = silu(gate) * up. Source: Shazeer, "GLU variants improve transformer" (arXiv 2002.05202).
void swiglu(const void* gate, const void* up, void* out, std::int64_t numel, bool bf16);
void swiglu_gradients(const void* grad, const void* gate, const void* up, void* gate_grad, void* up_grad,
                      std::int64_t numel, bool bf16);

// to += from, of fp32 or bf16: gradients into a sum. `fresh`: to = 0 + from, whatever was there.
void add_to_fp32(float* to, const void* from, std::int64_t numel, bool bf16, bool fresh = false);

}  // namespace intarsia::tensor
