#include "intarsia/nn/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "intarsia/tensor/kernels/in_use.h"

namespace intarsia::nn {
namespace {

class CausalAttention : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(8);
    if (!has_causal_attention(random(2), random(2), random(2))) GTEST_SKIP() << "this processor's faster one is ATen's";
  }
  at::Tensor random(std::int64_t heads) const { return at::randn({2, heads, 70, 16}).to(GetParam()); }
};

TEST_P(CausalAttention, EqualsThePlainOneWithItsGradients) {
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    const std::vector<at::Tensor> inputs{random(4).requires_grad_(), random(kv_heads).requires_grad_(),
                                         random(kv_heads).requires_grad_()};
    const at::Tensor seed = random(4);
    const auto gradients = [&](const at::Tensor& out) { return torch::autograd::grad({out}, inputs, {seed}); };
    const at::Tensor mine = causal_attention(inputs[0], inputs[1], inputs[2]);
    const at::Tensor plain = plain_causal_attention(inputs[0], inputs[1], inputs[2]);
    const double eps = GetParam() == at::kFloat ? 1e-5 : 1.0 / 64;
    EXPECT_TRUE(at::allclose(mine, plain, eps, eps));
    EXPECT_EQ(mine.transpose(1, 2).is_contiguous(), true);
    const auto a = gradients(mine), b = gradients(plain);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 2 * eps, 2 * eps)) << i << " " << kv_heads;
  }
}

TEST_P(CausalAttention, ReadsHeadsInAnyLayout) {
  const at::Tensor q = random(2), k = random(2), v = random(2);
  const at::Tensor wanted = causal_attention(q, k, v);
  const auto turned = [](const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); };
  const auto spread = [](const at::Tensor& x) { return at::repeat_interleave(x, 2, 3).slice(3, 0, 32, 2); };
  EXPECT_TRUE(at::equal(causal_attention(turned(q), turned(k), turned(v)), wanted));
  EXPECT_TRUE(at::equal(causal_attention(spread(q), spread(k), spread(v)), wanted));
}

TEST_P(CausalAttention, LeavesWhatItDoesNotKnowToTheLibrary) {
  const at::Tensor q = random(2), k = random(2);
  EXPECT_FALSE(has_causal_attention(q.narrow(2, 0, 5), k, k)) << "fewer queries than keys";
  EXPECT_FALSE(has_causal_attention(q.to(at::kHalf), k.to(at::kHalf), k.to(at::kHalf)));
  const tensor::PlainOperations plain;
  EXPECT_FALSE(has_causal_attention(q, k, k));
}

INSTANTIATE_TEST_SUITE_P(Each, CausalAttention, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& of) { return c10::toString(of.param); });

}  // namespace
}  // namespace intarsia::nn
