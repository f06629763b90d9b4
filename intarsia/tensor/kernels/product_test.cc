#include "intarsia/tensor/kernels/product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "intarsia/tensor/kernels/kernel_set.h"
#include "intarsia/tensor/matrix_product.h"

namespace intarsia::tensor {
namespace {

ProductInput input_of(const at::Tensor& x) {
  return {x.const_data_ptr(), x.scalar_type() == at::kBFloat16, x.stride(0), x.stride(1)};
}
ProductOutput output_of(const at::Tensor& x, bool add = false) {
  return {x.mutable_data_ptr(), x.scalar_type() == at::kBFloat16, x.stride(0), add};
}

// [rows, columns] whose rows (or, turned, columns) are contiguous and lie further apart than they are long.
at::Tensor matrix(std::int64_t rows, std::int64_t columns, at::ScalarType type, bool turned) {
  const at::Tensor wide = at::randn({turned ? columns : rows, (turned ? rows : columns) + 5}).to(type);
  const at::Tensor part = wide.narrow(1, 2, turned ? rows : columns);
  return turned ? part.t() : part;
}

// Against ATen in double: each product is exact in fp32, each sum of k of them rounds k times.
TEST(Product, EqualsAtenInEverySetDtypeLayoutAndOddSize) {
  at::manual_seed(1);
  struct Size {
    std::int64_t m, n, k;
  };
  for (const KernelSet* set : runnable_kernels())
    for (const Size size : {Size{1, 1, 1}, Size{13, 45, 7}, Size{31, 33, 513}, Size{240, 70, 1100}, Size{17, 1100, 20}})
      for (const auto type_a : {at::kFloat, at::kBFloat16})
        for (const auto type_b : {at::kFloat, at::kBFloat16})
          for (const int form : {0, 1, 2, 3})
            for (const bool add : {false, true}) {
              const at::Tensor a = matrix(size.m, size.k, type_a, (form & 1) != 0);
              const at::Tensor b = matrix(size.k, size.n, type_b, (form & 2) != 0);
              const at::Tensor out = matrix(size.m, size.n, form < 2 ? at::kFloat : at::kBFloat16, false);
              at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
              if (add) expected += out.to(at::kDouble);
              ProductScratch scratch;
              set->product(input_of(a), input_of(b), output_of(out, add), size.m, size.n, size.k, scratch);
              const at::Tensor error = (out.to(at::kDouble) - expected).abs();
              const at::Tensor bound =
                  expected.abs() * (form < 2 ? 1e-6 : 1.0 / 256) + 1e-6 * static_cast<double>(size.k + 4);
              EXPECT_TRUE(error.lt(bound).all().item<bool>())
                  << set->name << " " << size.m << " x " << size.n << " x " << size.k << ", form " << form << ", add "
                  << add << ": " << error.max().item<double>();
            }
}

TEST(Product, AnElementHasTheSameBitsWhateverStandsAround) {
  at::manual_seed(2);
  const at::Tensor a = at::randn({300, 700}).to(at::kBFloat16), b = at::randn({700, 90}).to(at::kBFloat16);
  for (const KernelSet* set : runnable_kernels()) {
    ProductScratch scratch;
    const at::Tensor whole = at::empty({300, 90}), part = at::empty({5, 7});
    set->product(input_of(a), input_of(b), output_of(whole), 300, 90, 700, scratch);
    const at::Tensor rows = a.narrow(0, 131, 5).t().contiguous().t(), columns = b.narrow(1, 60, 7).t().contiguous().t();
    set->product(input_of(rows), input_of(columns), output_of(part), 5, 7, 700, scratch);
    EXPECT_TRUE(at::equal(part, whole.narrow(0, 131, 5).narrow(1, 60, 7))) << set->name;
  }
}

TEST(Product, ThreadsGiveTheSameBits) {
  at::manual_seed(3);
  const int before = at::get_num_threads();
  for (const std::int64_t m : {50, 333}) {
    const at::Tensor a = at::randn({m, 100}), b = at::randn({200, 100}).t();
    const auto run = [&](int threads) {
      at::set_num_threads(threads);
      const at::Tensor out = at::zeros({m, 200});
      product(input_of(a), input_of(b), output_of(out, true), m, 200, 100);
      return out;
    };
    const at::Tensor one = run(1);
    EXPECT_TRUE(at::equal(one, run(3))) << m;
    EXPECT_TRUE(at::allclose(one, at::mm(a, b), 1e-4, 1e-4));
  }
  at::set_num_threads(before);
}

TEST(Product, NotANumberAndInfinityStay) {
  for (const KernelSet* set : runnable_kernels()) {
    ProductScratch scratch;
    const at::Tensor a = at::ones({16, 16}).to(at::kBFloat16), out = at::empty({16, 16}, a.options());
    a[3][2] = std::nan("");
    a[4][2] = INFINITY;
    set->product(input_of(a), input_of(at::ones({16, 16})), output_of(out), 16, 16, 16, scratch);
    EXPECT_TRUE(out[3].isnan().all().item<bool>()) << set->name;
    EXPECT_TRUE(out[4].isinf().all().item<bool>()) << set->name;
    EXPECT_TRUE(out[5].eq(16).all().item<bool>()) << set->name;
  }
}

TEST(Product, OfTensorsIsOursOnlyInBf16AndEqualsAten) {
  at::manual_seed(4);
  const at::Tensor a = at::randn({40, 64}).to(at::kBFloat16), b = at::randn({64, 48}).to(at::kBFloat16);
  const at::Tensor row = at::randn({48}).to(at::kBFloat16);
  EXPECT_FALSE(product_or_none(a.to(at::kFloat), b.to(at::kFloat)).defined());
  EXPECT_FALSE(product_or_none(a.narrow(0, 0, 3), b).defined());
  const at::Tensor ours = product_or_none(a, b), with_row = product_or_none(row, a, b);
  if (!product_is_faster_for_bf16()) GTEST_SKIP() << "this processor multiplies bf16 faster by ATen";
  EXPECT_TRUE(at::allclose(ours.to(at::kFloat), at::mm(a.to(at::kFloat), b.to(at::kFloat)), 1.0 / 200, 1e-4));
  EXPECT_TRUE(at::allclose(with_row.to(at::kFloat), at::addmm(row.to(at::kFloat), a.to(at::kFloat), b.to(at::kFloat)),
                           1.0 / 200, 1e-4));
  // Neither of its strides is 1.
  const at::Tensor spread = at::randn({40, 128}).to(at::kBFloat16).slice(1, 0, 128, 2);
  EXPECT_TRUE(at::equal(product_or_none(spread, b), product_or_none(spread.contiguous(), b)));
}

}  // namespace
}  // namespace intarsia::tensor
