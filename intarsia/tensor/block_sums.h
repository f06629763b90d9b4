// Sums of squares of tensors, wherever they lie, in the order of kernels/square_sum.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace intarsia::tensor {

// Writes the sum of squares of each 1,024 elements of `values` (fp32, contiguous, [n * 1024]), in double, to `sums` (n
// doubles in host memory). On a device the additions are those of the host in the same order, so that the bits are the
// host's; only the sums leave it. Memory: on a device 3/8 of `values`, of at most 512 MB of them at a time.
void block_square_sums(const at::Tensor& values, const at::Tensor& sums);

// The blocks added in order: square_sum() of the elements. Memory: on a device as above.
double square_sum_of(const at::Tensor& values);

}  // namespace intarsia::tensor
