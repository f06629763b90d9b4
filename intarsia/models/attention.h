// Causal attention with what families add to it: sliding windows and documents that do not see each other.
// Shape suffixes: B samples, T tokens, N heads, K key/value heads, D head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace intarsia::models {

// What is added to the scores: 0 where a query sees a key, -inf elsewhere. Undefined when causal attention is all.
// A query sees itself and earlier keys: with window > 0 only `window` of them, itself counted; with `positions` [B, T]
// only those of its own document, which begins where a position is 0. Before the `length` = T queries' own keys stand
// those of `past` tokens, always 0 with positions.
// Shapes: [T, past + T], or [B, 1, T, T] with positions, of dtype `type`. Memory: that, and twice a byte an element
// meanwhile.
at::Tensor attention_mask(std::int64_t length, std::int64_t window, const at::Tensor& positions, at::ScalarType type,
                          std::int64_t past = 0);

// Shapes: q_BNTD, k_BKTD, v_BKTD, N a multiple of K, k and v with as many tokens more as the mask has; mask as above ->
// [B, T, N * D]. Scores are divided by sqrt(D). One query sees all keys when there is no mask.
at::Tensor attend(const at::Tensor& q_BNTD, const at::Tensor& k_BKTD, const at::Tensor& v_BKTD, const at::Tensor& mask);

}  // namespace intarsia::models
