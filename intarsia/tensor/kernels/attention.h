// Causal attention in fp32 over fp32 and bf16 memory, forward and backward. Pointers are to host memory of float, or of
// bf16 where `bf16` says so.
#pragma once

#include <cstdint>

#include "intarsia/tensor/kernels/rows.h"

namespace intarsia::tensor {

// Queries see themselves and earlier keys. `heads` is a multiple of `kv_heads`; head_dim is at most kMostHeadDim.
struct AttentionShape {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, length = 0, head_dim = 0;
  double scale = 1;  // of the scores, above 0
};
constexpr std::int64_t kMostHeadDim = 256;

// Elements [b, t, n, d], as HeadStrides says.
struct HeadsInput {
  const void* data = nullptr;
  HeadStrides strides = {};
};
struct HeadsOutput {
  void* data = nullptr;
  HeadStrides strides = {};
};

// out = softmax(scale q k^T) v of each head; log_sum [b, n, t] gets the logarithm of each softmax's denominator, for
// the backward. Scores, probabilities and sums are fp32; only out is rounded. A query's result has the same bits
// whatever other samples and heads there are and with any number of threads.
// Memory: about 10 length * head_dim floats a thread, which the thread keeps. Threads: runs on ATen's.
// Source: Dao, "FlashAttention-2" (arXiv 2307.08691), with whole rows of scores.
void attention(const HeadsInput& q, const HeadsInput& k, const HeadsInput& v, const HeadsOutput& out, float* log_sum,
               const AttentionShape& shape, bool bf16);

// The gradients of q, k and v from those of out. Scores are computed again.
struct AttentionGradients {
  HeadsOutput q, k, v;
};
void attention_gradients(const HeadsInput& grad, const HeadsInput& q, const HeadsInput& k, const HeadsInput& v,
                         const HeadsInput& out, const float* log_sum, const AttentionGradients& to,
                         const AttentionShape& shape, bool bf16);

}  // namespace intarsia::tensor
