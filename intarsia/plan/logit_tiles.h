// How many logits the fused head and loss (nn/linear_cross_entropy.h) hold at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace intarsia::plan {

constexpr std::int64_t kLogitTileRows = 2048;
constexpr std::int64_t kLogitTileColumns = 1024;
constexpr std::int64_t kLogitBytesKept = std::int64_t{32} << 20;  // up to it all logits are kept, else one tile

// In elements.
inline std::int64_t logits_held(std::int64_t rows, std::int64_t vocab, std::int64_t element_bytes) {
  if (rows * vocab * element_bytes <= kLogitBytesKept) return rows * vocab;
  return std::min(rows, kLogitTileRows) * std::min(vocab, kLogitTileColumns);
}

}  // namespace intarsia::plan
