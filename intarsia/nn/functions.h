// Pieces of transformer blocks as single operations of autograd: our kernels (tensor/kernels) forward and backward for
// tensors in host memory of fp32 or bf16, and otherwise (devices, fp16, autocast) the same as ATen's operations, which
// the plain_* functions are. A backward has no backward of its own.
#pragma once

#include <ATen/core/Tensor.h>

namespace intarsia::nn {

// Whether an operation on `x` is ours.
bool has_kernels(const at::Tensor& x);

// weight * (x / sqrt(mean(x^2) + eps)) over the last dimension, the quotient rounded to x's dtype first, as
// transformers does. Shapes: x [..., H], weight [H] -> [..., H].
// Memory: the result; for the backward x and one fp32 a row.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Turns pairs (j, j + D/2) of each head by their place's angle: x cos + (-right half, left half of x) sin.
// Shapes: x [B, N, T, D]; cos, sin [T, D] or [B, 1, T, D], contiguous, of x's dtype -> [B, N, T, D], in memory as
// [B, T, N, D]. Memory: the result; nothing but the tables for the backward.
at::Tensor rotate(const at::Tensor& x_BNTD, const at::Tensor& cos, const at::Tensor& sin);
at::Tensor plain_rotate(const at::Tensor& x_BNTD, const at::Tensor& cos, const at::Tensor& sin);

// silu(gate) * up. Shapes: equal. Memory: the result; gate and up for the backward.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor plain_swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace intarsia::nn
