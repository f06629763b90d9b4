// The update of kernels/adamw.h on tensors of a device.
#pragma once

#include <ATen/core/Tensor.h>

#include "intarsia/tensor/kernels/adamw.h"

namespace intarsia::tensor {

// One operation of the device for each operation of adam_update(), in its order, none of them fused: where +, -, *, /
// and the root are correctly rounded, the bits are the host's. Shapes: [n], fp32. Memory: three tensors of that size.
void adam_update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& moment1, const at::Tensor& moment2,
                 const AdamStep& step);

}  // namespace intarsia::tensor
