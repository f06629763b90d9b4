// For processors with AVX2 and FMA. Compiled like the rest, but for what stands between the pragmas.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "intarsia/tensor/kernels/kernel_set.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace intarsia::tensor {
namespace {
#define INTARSIA_LANES 8
#include "intarsia/tensor/kernels/vec.h"
// Not sorted: needs vec.h.
#include "intarsia/tensor/kernels/product_body.h"
#include "intarsia/tensor/kernels/rows_body.h"
#include "intarsia/tensor/kernels/softmax_body.h"
}  // namespace

const KernelSet& avx2_kernels() {
  static const KernelSet set{.name = "avx2",
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
#pragma GCC pop_options
#else
namespace intarsia::tensor {
const KernelSet& avx2_kernels() { return portable_kernels(); }
}  // namespace intarsia::tensor
#endif
