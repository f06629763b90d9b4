// The kernels of one instruction set as a KernelSet. Included once by each kernels_SET.cc, behind its target pragma and
// kernel_set.h, with INTARSIA_SET (a text), INTARSIA_SET_FUNCTION and INTARSIA_LANES. Internal to kernels.
#pragma once
namespace intarsia::tensor {
namespace {
#include "intarsia/tensor/kernels/vec.h"
// Not sorted: needs vec.h.
#include "intarsia/tensor/kernels/product_body.h"
#include "intarsia/tensor/kernels/rows_body.h"
#include "intarsia/tensor/kernels/softmax_body.h"
// Needs product_body.h and rows_body.h.
#include "intarsia/tensor/kernels/attention_body.h"
}  // namespace

const KernelSet& INTARSIA_SET_FUNCTION() {
  static const KernelSet set{.name = INTARSIA_SET,
                             .product = product,
                             .rms_norm = rms_norm,
                             .rms_norm_input_gradient = rms_norm_input_gradient,
                             .rms_norm_weight_gradient = rms_norm_weight_gradient,
                             .rotary = rotary,
                             .swiglu = swiglu,
                             .swiglu_gradients = swiglu_gradients,
                             .add_to_softmax = add_to_softmax,
                             .softmax_gradient = softmax_gradient,
                             .add_to_fp32 = add_to_fp32,
                             .attention = attention,
                             .attention_gradients = attention_gradients};
  return set;
}

}  // namespace intarsia::tensor
