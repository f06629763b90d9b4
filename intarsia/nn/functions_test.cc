#include "intarsia/nn/functions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace intarsia::nn {
namespace {

using Inputs = std::vector<at::Tensor>;
using Operation = std::function<at::Tensor(const Inputs&)>;

struct Result {
  at::Tensor value;
  Inputs grads;
};

// `operation` on copies of `inputs` with the same strides, and the gradients of its product with fixed random numbers
// that `type` can hold.
Result run(const Operation& operation, const Inputs& inputs, at::ScalarType type) {
  Inputs leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_());
  const at::Tensor value = operation(leaves);
  at::manual_seed(7);
  const at::Tensor seed = at::randn(value.sizes()).to(type).to(value.scalar_type());
  return {value.detach(), torch::autograd::grad({value}, leaves, {seed})};
}

// Ours against the plain operations in double; `eps` is the dtype's. Values are of size 1 and are rounded a few times.
void expect_near(const Operation& ours, const Operation& plain, const Inputs& inputs, double sums = 1) {
  Inputs wide;
  for (const at::Tensor& input : inputs) wide.push_back(input.to(at::kDouble));
  const at::ScalarType type = inputs[0].scalar_type();
  const Result mine = run(ours, inputs, type), wanted = run(plain, wide, type);
  const double eps = type == at::kBFloat16 ? 1.0 / 128 : 2e-6;
  EXPECT_TRUE(at::allclose(mine.value.to(at::kDouble), wanted.value, eps, eps));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(mine.grads[i].scalar_type(), inputs[i].scalar_type());
    EXPECT_TRUE(at::allclose(mine.grads[i].to(at::kDouble), wanted.grads[i], 2 * eps, 2 * eps * sums))
        << "gradient " << i << ": " << (mine.grads[i].to(at::kDouble) - wanted.grads[i]).abs().max().item<double>();
  }
}

class Functions : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape).to(GetParam()); }
  void SetUp() override { at::manual_seed(3); }
};

TEST_P(Functions, RmsNormEqualsThePlainOne) {
  for (const std::int64_t width : {1, 16, 37, 130})
    expect_near([](const Inputs& x) { return rms_norm(x[0], x[1], 1e-5); },
                [](const Inputs& x) {
                  const at::Tensor scale = at::rsqrt(x[0].pow(2).mean(-1, true) + 1e-5);
                  return x[1] * (x[0] * scale);
                },
                {random({2, 5, width}), random({width})}, 4);
}

TEST_P(Functions, RmsNormRoundsWhereThePlainOneDoes) {
  const at::Tensor x = random({64, 96}), weight = random({96});
  const at::Tensor ours = rms_norm(x, weight, 1e-6), plain = plain_rms_norm(x, weight, 1e-6);
  const double unequal = ours.ne(plain).to(at::kDouble).mean().item<double>();
  EXPECT_LT(unequal, GetParam() == at::kBFloat16 ? 0.01 : 1.0) << "a root that differs in its last bit moves few";
  EXPECT_TRUE(at::allclose(ours, plain, GetParam() == at::kBFloat16 ? 1.0 / 128 : 1e-6, 0));
}

TEST_P(Functions, RotateEqualsThePlainOne) {
  for (const std::int64_t head_dim : {2, 10, 64, 70})
    for (const bool per_sample : {false, true}) {
      const at::Tensor angles = per_sample ? at::randn({3, 1, 7, head_dim}) : at::randn({7, head_dim});
      const at::Tensor cos = angles.cos().to(GetParam()), sin = angles.sin().to(GetParam());
      const Inputs heads{random({3, 7, 4, head_dim}).transpose(1, 2)};
      expect_near([&](const Inputs& x) { return rotate(x[0], cos, sin); },
                  [&](const Inputs& x) { return plain_rotate(x[0], cos.to(at::kDouble), sin.to(at::kDouble)); }, heads);
      EXPECT_TRUE(at::equal(rotate(heads[0], cos, sin), plain_rotate(heads[0], cos, sin)) || GetParam() == at::kFloat);
      EXPECT_TRUE(at::equal(rotate(heads[0].contiguous(), cos, sin), rotate(heads[0], cos, sin)));
    }
}

TEST_P(Functions, RotateOfASpreadHeadEqualsThatOfACopy) {
  const at::Tensor cos = random({7, 6}), sin = random({7, 6});
  const at::Tensor spread = random({2, 3, 7, 12}).slice(3, 0, 12, 2);
  EXPECT_TRUE(at::equal(rotate(spread, cos, sin), rotate(spread.contiguous(), cos, sin)));
}

TEST_P(Functions, SwigluEqualsThePlainOne) {
  for (const std::int64_t width : {1, 15, 64, 133}) {
    expect_near([](const Inputs& x) { return swiglu(x[0], x[1]); },
                [](const Inputs& x) { return plain_swiglu(x[0], x[1]); }, {random({3, width}), random({3, width})});
    expect_near([](const Inputs& x) { return swiglu(x[0], x[1]); },
                [](const Inputs& x) { return plain_swiglu(x[0], x[1]); },
                {random({width, 3}).t(), random({3, 2 * width}).slice(1, 0, 2 * width, 2)});
  }
}

TEST_P(Functions, SwigluAtTheEndsOfTheRange) {
  const at::Tensor gate = at::tensor({-1e30F, -100.0F, -88.0F, 0.0F, 88.0F, 100.0F, 1e30F}).to(GetParam());
  const at::Tensor ones = at::ones_like(gate);
  EXPECT_TRUE(at::allclose(swiglu(gate, ones), plain_swiglu(gate, ones), 1e-2, 1e-8));
  EXPECT_TRUE(swiglu(ones * NAN, ones).isnan().all().item<bool>());
}

TEST_P(Functions, FrozenWeightsGetNoGradient) {
  const at::Tensor x = random({4, 32}).requires_grad_(), weight = random({32});
  rms_norm(x, weight, 1e-6).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Each, Functions, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& of) { return c10::toString(of.param); });

}  // namespace
}  // namespace intarsia::nn
