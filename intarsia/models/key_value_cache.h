// Keys and values of a text that a model has read, so that a text that grows is not read again from its beginning.
// Shape suffixes: B samples (one), T tokens, K key/value heads, D head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace intarsia::models {

// What Model::last_logits keeps from one call to the next. The caller owns it and gives it with any text; what cannot
// be used for the next text is forgotten, so results are those without a cache. One model's, with unchanged parameters.
// Memory: 2 * blocks * K * D elements of compute dtype a token, and as much again for room to grow.
// Threads: one rank's thread.
class KeyValueCache {
 public:
  // Forgets everything behind the part that `ids` begins with, and all if `frequencies` (of the rotary embedding;
  // empty: none) are others than those that keys were turned with. Returns how many tokens are kept: fewer than
  // ids.size().
  std::int64_t keep(std::span<const std::int64_t> ids, std::vector<float> frequencies);

  // Adds a block's keys and values of the tokens behind those that are kept; returns those of the whole text, as views.
  std::pair<at::Tensor, at::Tensor> extend(std::size_t block, const at::Tensor& k_BKTD, const at::Tensor& v_BKTD);

  // Called when all blocks have been extended: the cache now holds `ids`.
  void hold(std::span<const std::int64_t> ids) { ids_.assign(ids.begin(), ids.end()); }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<float> frequencies_;
  std::vector<std::pair<at::Tensor, at::Tensor>> blocks_;
};

// What is left to read: int64 [1, ids.size() - kept], on the CPU.
at::Tensor unread(std::span<const std::int64_t> ids, std::int64_t kept);

}  // namespace intarsia::models
