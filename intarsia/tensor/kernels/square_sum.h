// Sum of squares of fp32 memory, in double, in an order that depends on the length only.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

// Sums blocks of 1,024 elements in double and adds the blocks in order. Infinities and NaNs come through.
double square_sum(const float* data, std::int64_t numel);

}  // namespace intarsia::tensor
