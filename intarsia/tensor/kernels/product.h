// Matrix products over fp32 and bf16 memory, computed in fp32.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

// A matrix in host memory: element (i, j) is at data[i * row_stride + j * column_stride], of float or bf16. One of the
// strides must be 1.
struct ProductInput {
  const void* data = nullptr;
  bool bf16 = false;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
};

// Rows are contiguous, row_stride elements apart. `add`: added to what is there, otherwise written over it.
struct ProductOutput {
  void* data = nullptr;
  bool bf16 = false;
  std::int64_t row_stride = 0;
  bool add = false;
};

// out (+)= a b. Shapes: a [m, k], b [k, n], out [m, n]; out overlaps neither.
// Elements of bf16 are widened exactly; an element of the result is one chain of fused multiply-adds over k in order,
// rounded at its end if out is bf16. So it has the same bits whatever the strides, whatever other rows and columns
// there are, and with any number of threads. (Without FMA in the instruction set: of multiplications and additions.)
// Memory: up to 6 MiB a thread, which the thread keeps. Threads: runs on ATen's.
// Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS 34, 2008).
void product(const ProductInput& a, const ProductInput& b, const ProductOutput& out, std::int64_t m, std::int64_t n,
             std::int64_t k);

// Whether `product` beats oneDNN's bf16 product on this processor: where AMX is absent and AVX-512's bf16 instruction
// runs at half the rate of fp32 (Intel's), or where there is none.
bool product_is_faster_for_bf16();

}  // namespace intarsia::tensor
