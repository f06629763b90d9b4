#include "intarsia/tensor/matrix_product.h"

#include <ATen/ATen.h>

#include "intarsia/tensor/kernels/in_use.h"
#include "intarsia/tensor/kernels/product.h"

namespace intarsia::tensor {
namespace {

constexpr std::int64_t kSmallest = 16;  // a side below it: packing costs more than it saves

bool is_plain(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kBFloat16 && x.layout() == at::kStrided && !x._is_zerotensor() &&
         !x.is_neg();
}

bool is_ours(const at::Tensor& a, const at::Tensor& b) {
  return is_plain(a) && is_plain(b) && a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) &&
         a.size(0) >= kSmallest && a.size(1) >= kSmallest && b.size(1) >= kSmallest && kernels_in_use() &&
         product_is_faster_for_bf16();
}

ProductInput input_of(const at::Tensor& x) {
  return {.data = x.const_data_ptr(), .bf16 = true, .row_stride = x.stride(0), .column_stride = x.stride(1)};
}

bool has_contiguous_lines(const at::Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1; }

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, bool add) {
  const at::Tensor left = has_contiguous_lines(a) ? a : a.contiguous();
  const at::Tensor right = has_contiguous_lines(b) ? b : b.contiguous();
  product(input_of(left), input_of(right),
          {out.mutable_data_ptr(), out.scalar_type() == at::kBFloat16, out.stride(0), add}, a.size(0), b.size(1),
          a.size(1));
}

}  // namespace

at::Tensor product_or_none(const at::Tensor& a, const at::Tensor& b) {
  if (!is_ours(a, b)) return {};
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(a, b, out, false);
  return out;
}

at::Tensor product_or_none(const at::Tensor& row, const at::Tensor& a, const at::Tensor& b) {
  if (!is_ours(a, b) || !is_plain(row) || row.dim() != 1 || row.size(0) != b.size(1)) return {};
  at::Tensor out = row.expand({a.size(0), -1}).contiguous();
  multiply(a, b, out, true);
  return out;
}

void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (is_ours(a, b)) return multiply(a, b, out, add);
  at::Tensor result = out;
  if (out.scalar_type() == a.scalar_type()) {
    add ? at::addmm_out(result, out, a, b) : at::mm_out(result, a, b);
  } else {
    const at::Tensor product = at::mm(a, b);
    add ? result.add_(product) : result.copy_(product);
  }
}

}  // namespace intarsia::tensor
