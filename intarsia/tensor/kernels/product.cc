#include "intarsia/tensor/kernels/product.h"

#include <algorithm>
#include <cstring>

#include "intarsia/tensor/kernels/kernel_set.h"
#include "intarsia/tensor/kernels/parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace intarsia::tensor {
namespace {

constexpr std::int64_t kSlice = 32;  // rows or columns of a thread's slice are a multiple of it
thread_local ProductScratch scratch_of_thread;

#if defined(__x86_64__)
bool has_amx_bf16() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1U << 22U)) != 0;
}

bool has_avx512_bf16() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1U << 5U)) != 0;
}
#endif

}  // namespace

void product(const ProductInput& a, const ProductInput& b, const ProductOutput& out, std::int64_t m, std::int64_t n,
             std::int64_t k) {
  const std::int64_t threads = num_threads();
  if (threads == 1) return kernels().product(a, b, out, m, n, k, scratch_of_thread);
  // Slices of the longer side.
  const std::int64_t longer = std::max(m, n);
  const std::int64_t slice = ((longer + threads - 1) / threads + kSlice - 1) / kSlice * kSlice;
  for_each_task((longer + slice - 1) / slice, [&](std::int64_t task) {
    const std::int64_t begin = task * slice, size = std::min(slice, longer - begin);
    const auto moved = [](const void* data, bool bf16, std::int64_t elements) {
      return static_cast<const char*>(data) + elements * (bf16 ? 2 : 4);
    };
    ProductInput a_part = a, b_part = b;
    ProductOutput out_part = out;
    if (m >= n)
      a_part.data = moved(a.data, a.bf16, begin * a.row_stride);
    else
      b_part.data = moved(b.data, b.bf16, begin * b.column_stride);
    out_part.data = const_cast<char*>(moved(out.data, out.bf16, m >= n ? begin * out.row_stride : begin));
    kernels().product(a_part, b_part, out_part, m >= n ? size : m, m >= n ? n : size, k, scratch_of_thread);
  });
}

bool product_is_faster_for_bf16() {
#if defined(__x86_64__)
  static const bool faster = [] {
    if (kernels().product == portable_kernels().product) return false;
    if (!has_avx512_bf16()) return true;
    return !has_amx_bf16() && __builtin_cpu_is("intel") != 0;
  }();
  return faster;
#else
  return false;
#endif
}

}  // namespace intarsia::tensor
