#include "intarsia/tensor/kernels/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "intarsia/tensor/kernels/kernel_set.h"

namespace intarsia::tensor {
namespace {

HeadStrides strides_of(const at::Tensor& x_BTND) {
  return {.batch = x_BTND.stride(0), .place = x_BTND.stride(1), .head = x_BTND.stride(2)};
}
HeadsInput input_of(const at::Tensor& x) { return {x.const_data_ptr(), strides_of(x)}; }
HeadsOutput output_of(const at::Tensor& x) { return {x.mutable_data_ptr(), strides_of(x)}; }

struct Result {
  at::Tensor out, log_sum, q, k, v;
};

// One set's forward and backward, over all of `shape` in one range.
Result computed(const KernelSet& set, const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& v, const at::Tensor& grad) {
  const bool bf16 = q.scalar_type() == at::kBFloat16;
  const std::int64_t items = shape.batch * shape.kv_heads;
  Result result{at::full_like(q, NAN), at::full({shape.batch, shape.heads, shape.length}, NAN), at::full_like(q, NAN),
                at::full_like(k, NAN), at::full_like(v, NAN)};
  ProductScratch scratch;
  set.attention(input_of(q), input_of(k), input_of(v), output_of(result.out), result.log_sum.mutable_data_ptr<float>(),
                shape, bf16, scratch, 0, items);
  set.attention_gradients(input_of(grad), input_of(q), input_of(k), input_of(v), input_of(result.out),
                          result.log_sum.const_data_ptr<float>(),
                          {.q = output_of(result.q), .k = output_of(result.k), .v = output_of(result.v)}, shape, bf16,
                          scratch, 0, items);
  return result;
}

// In double, of the same inputs.
Result by_definition(const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& grad) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble).detach().requires_grad_(); };
  const at::Tensor qw = wide(q), kw = wide(k), vw = wide(v);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const at::Tensor scores =
      at::matmul(qw.transpose(1, 2), kw.repeat_interleave(group, 2).permute({0, 2, 3, 1})) * shape.scale;
  const at::Tensor hidden = at::ones({shape.length, shape.length}, at::kBool).triu(1);
  const at::Tensor seen = scores.masked_fill(hidden, -INFINITY);
  const at::Tensor out = at::matmul(seen.softmax(-1), vw.repeat_interleave(group, 2).transpose(1, 2)).transpose(1, 2);
  out.backward(grad.to(at::kDouble));
  return {out.detach(), seen.logsumexp(-1).detach(), qw.grad(), kw.grad(), vw.grad()};
}

at::Tensor heads(const AttentionShape& shape, std::int64_t number, at::ScalarType type) {
  return at::randn({shape.batch, shape.length, number, shape.head_dim + 3}).to(type).narrow(3, 1, shape.head_dim);
}

TEST(AttentionKernel, EqualsItsDefinitionInEverySetDtypeAndOddSize) {
  at::manual_seed(4);
  for (const KernelSet* set : runnable_kernels())
    for (const AttentionShape shape : {AttentionShape{1, 1, 1, 1, 1, 1.0}, AttentionShape{2, 2, 1, 5, 3, 0.6},
                                       AttentionShape{1, 4, 2, 57, 64, 0.125}, AttentionShape{1, 3, 3, 130, 40, 0.2},
                                       AttentionShape{1, 2, 1, 1100, 32, 0.2}, AttentionShape{1, 1, 1, 70, 256, 0.1}})
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor q = heads(shape, shape.heads, type), k = heads(shape, shape.kv_heads, type),
                         v = heads(shape, shape.kv_heads, type), grad = heads(shape, shape.heads, type);
        const Result mine = computed(*set, shape, q, k, v, grad), wanted = by_definition(shape, q, k, v, grad);
        const double eps = type == at::kFloat ? 2e-5 : 1.0 / 128;
        const auto expect_near = [&](const char* what, const at::Tensor& a, const at::Tensor& b, double most) {
          EXPECT_TRUE(at::allclose(a.to(at::kDouble), b, most, most))
              << what << " of " << set->name << ", " << type << ", " << shape.length << " x " << shape.head_dim << ": "
              << (a.to(at::kDouble) - b).abs().max().item<double>();
        };
        expect_near("out", mine.out, wanted.out, eps);
        expect_near("log_sum", mine.log_sum, wanted.log_sum, 2e-5);
        // The backward reads the rounded output: an error of its size in each score's gradient.
        expect_near("q", mine.q, wanted.q, 3 * eps);
        expect_near("k", mine.k, wanted.k, 3 * eps);
        expect_near("v", mine.v, wanted.v, 3 * eps);
      }
}

TEST(AttentionKernel, AHeadHasTheSameBitsAloneAndAmongOthers) {
  at::manual_seed(5);
  const AttentionShape shape{3, 4, 2, 75, 16, 0.25};
  AttentionShape alone = shape;
  alone.batch = 1;
  for (const KernelSet* set : runnable_kernels()) {
    const at::Tensor q = heads(shape, 4, at::kBFloat16), k = heads(shape, 2, at::kBFloat16),
                     v = heads(shape, 2, at::kBFloat16), grad = heads(shape, 4, at::kBFloat16);
    const Result all = computed(*set, shape, q, k, v, grad);
    const auto last = [](const at::Tensor& x) { return x.narrow(0, 2, 1); };
    const Result one = computed(*set, alone, last(q), last(k), last(v), last(grad));
    EXPECT_TRUE(at::equal(last(all.out), one.out)) << set->name;
    EXPECT_TRUE(at::equal(last(all.q), one.q)) << set->name;
    EXPECT_TRUE(at::equal(last(all.k), one.k)) << set->name;
    EXPECT_TRUE(at::equal(last(all.v), one.v)) << set->name;
  }
}

TEST(AttentionKernel, LargeScoresDoNotOverflow) {
  const AttentionShape shape{1, 1, 1, 40, 8, 1.0};
  at::manual_seed(6);
  for (const KernelSet* set : runnable_kernels()) {
    const at::Tensor q = heads(shape, 1, at::kFloat) * 100, k = heads(shape, 1, at::kFloat) * 100,
                     v = heads(shape, 1, at::kFloat);
    const Result mine = computed(*set, shape, q, k, v, v), wanted = by_definition(shape, q, k, v, v);
    EXPECT_TRUE(at::allclose(mine.out.to(at::kDouble), wanted.out, 1e-2, 1e-2)) << set->name;
    EXPECT_TRUE(mine.q.isfinite().all().item<bool>()) << set->name;
  }
}

}  // namespace
}  // namespace intarsia::tensor
