// Matrix products of tensors by our own kernel, where that beats ATen's.
#pragma once

#include <ATen/core/Tensor.h>

namespace intarsia::tensor {

// a b, or undefined where ATen's product is to be taken: on a device, in fp32 (which ATen computes at the processor's
// peak), in small sizes, and where product_is_faster_for_bf16() says no.
// Shapes: a [m, k], b [k, n] -> [m, n], bf16, rounded once. Memory: the result.
at::Tensor product_or_none(const at::Tensor& a, const at::Tensor& b);

// a b + row, with `row` [n] added to every row of the product before it is rounded; else as above.
at::Tensor product_or_none(const at::Tensor& row, const at::Tensor& a, const at::Tensor& b);

// out = a b, or out += a b where `add`. Shapes: a [m, k], b [k, n], of one dtype, fp32 or bf16; out [m, n], of theirs
// or fp32, its rows contiguous. By our kernel under the conditions above, else by ATen's. Memory: none, but where ATen
// has bf16 inputs and an fp32 `out` the product.
void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add);

}  // namespace intarsia::tensor
