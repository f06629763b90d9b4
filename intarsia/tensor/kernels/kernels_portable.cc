// For processors without AVX2: four lanes, which compilers know everywhere.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "intarsia/tensor/kernels/kernel_set.h"

namespace intarsia::tensor {
namespace {
#define INTARSIA_LANES 4
#include "intarsia/tensor/kernels/vec.h"
// Not sorted: needs vec.h.
#include "intarsia/tensor/kernels/product_body.h"
#include "intarsia/tensor/kernels/rows_body.h"
#include "intarsia/tensor/kernels/softmax_body.h"
}  // namespace

const KernelSet& portable_kernels() {
  static const KernelSet set{.name = "portable",
                             .product = product,
                             .rms_norm = rms_norm,
                             .rms_norm_input_gradient = rms_norm_input_gradient,
                             .rms_norm_weight_gradient = rms_norm_weight_gradient,
                             .rotary = rotary,
                             .swiglu = swiglu,
                             .swiglu_gradients = swiglu_gradients,
                             .add_to_softmax = add_to_softmax,
                             .softmax_gradient = softmax_gradient,
                             .add_to_fp32 = add_to_fp32};
  return set;
}

}  // namespace intarsia::tensor
