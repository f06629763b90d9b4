// Causal attention as one operation of autograd, with our kernels (tensor/kernels/attention.h) where functions.h has
// them and they are the faster ones.
#pragma once

#include <ATen/core/Tensor.h>

namespace intarsia::nn {

// Whether causal_attention computes these: equally many queries and keys, in host memory, of fp32 or bf16.
bool has_causal_attention(const at::Tensor& q_BNTD, const at::Tensor& k_BKTD, const at::Tensor& v_BKTD);

// softmax(q k^T / sqrt(D)) v, where a query sees itself and earlier keys; probabilities are fp32 in either dtype.
// Shapes: q [B, N, T, D], k and v [B, K, T, D], N a multiple of K, for which has_causal_attention holds -> [B, N, T,
// D], in memory as [B, T, N, D]. Memory: the result and one fp32 a query and head; for the backward q, k, v and both.
// A backward has no backward of its own.
at::Tensor causal_attention(const at::Tensor& q_BNTD, const at::Tensor& k_BKTD, const at::Tensor& v_BKTD);
at::Tensor plain_causal_attention(const at::Tensor& q_BNTD, const at::Tensor& k_BKTD, const at::Tensor& v_BKTD);

}  // namespace intarsia::nn
