// The head of a language model and its loss as one operation that never holds all logits.
#pragma once

#include <ATen/core/Tensor.h>

namespace intarsia::nn {

// Sum over rows with a target of -log softmax(weight x[row])[target]. The gradients of x and weight are computed with
// the loss, tile of logits by tile, and wait for the backward, which scales them; it can run once.
// Shapes: x [rows, H], weight [V, H] of x's dtype, fp32 or bf16, on the host; targets [rows] int64, negative where
// nothing counts -> scalar fp32. Logits are rounded to x's dtype and their functions computed in fp32, as plain_* does.
// Memory: the gradients in their dtype, x's in fp32 besides, and logits: all of them where that is at most 32 MiB, else
// a tile of at most 2048 rows and 1024 columns, computed twice.
// Source: Wijmans et al., "Cut your losses in large-vocabulary language models" (arXiv 2411.09009); gradients in the
// forward: Hsu et al., "Liger Kernel" (arXiv 2410.10989), section 3.2.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets);
at::Tensor plain_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets);

}  // namespace intarsia::nn
