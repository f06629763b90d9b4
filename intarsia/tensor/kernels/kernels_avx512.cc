// For processors with AVX-512 and FMA. Compiled like the rest, but for what stands between the pragmas.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "intarsia/tensor/kernels/kernel_set.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#define INTARSIA_SET "avx512"
#define INTARSIA_SET_FUNCTION avx512_kernels
#define INTARSIA_LANES 16
#include "intarsia/tensor/kernels/set_body.h"
#pragma GCC pop_options
#else
namespace intarsia::tensor {
const KernelSet& avx512_kernels() { return portable_kernels(); }
}  // namespace intarsia::tensor
#endif
