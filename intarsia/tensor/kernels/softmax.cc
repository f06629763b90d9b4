#include "intarsia/tensor/kernels/softmax.h"

#include "intarsia/tensor/kernels/kernel_set.h"
#include "intarsia/tensor/kernels/parallel.h"

namespace intarsia::tensor {

constexpr std::int64_t kRowsOfAThread = 16;

void add_to_softmax(const void* logits, const LogitTile& tile, float* maximum, float* sum, bool bf16) {
  for_each_range(tile.rows, kRowsOfAThread, [&](std::int64_t begin, std::int64_t end) {
    kernels().add_to_softmax(logits, tile, maximum, sum, bf16, begin, end);
  });
}

void softmax_gradient(void* logits, const LogitTile& tile, const float* log_sum, const std::int64_t* targets,
                      bool bf16) {
  for_each_range(tile.rows, kRowsOfAThread, [&](std::int64_t begin, std::int64_t end) {
    kernels().softmax_gradient(logits, tile, log_sum, targets, bf16, begin, end);
  });
}

}  // namespace intarsia::tensor
