// Softmax and its gradient over tiles of logits. Pointers are to host memory of float, or of bf16 where `bf16` says so;
// functions and sums are computed in fp32.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

// Rows of a tile of logits: `columns` of all logits, those from `first` on. Rows are contiguous, `columns` apart.
struct LogitTile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t first = 0;
};

// Takes a tile into each row's running maximum and sum of exp(logit - maximum), which begin at -infinity and 0. Tiles
// of a row one after another. Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv
// 1805.02867).
void add_to_softmax(const void* logits, const LogitTile& tile, float* maximum, float* sum, bool bf16);

// Turns a tile of logits into the gradient of sum over rows of -log softmax(row)[target]: exp(logit - log_sum[row]),
// minus 1 at the target; zeros in rows whose target is negative. `targets` count from the first of all logits.
void softmax_gradient(void* logits, const LogitTile& tile, const float* log_sum, const std::int64_t* targets,
                      bool bf16);

}  // namespace intarsia::tensor
