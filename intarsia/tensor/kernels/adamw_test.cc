#include "intarsia/tensor/kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace intarsia::tensor {
namespace {

// behaviours, kind 4: rate 0.01, no decay, gradient always 1, parameters of ones, two steps: 0.98.
TEST(Adam, TwoStepsOfConstantGradientMoveByTwiceTheRate) {
  std::vector<float> param(1000, 1.0F), grad(1000, 1.0F), m(1000, 0.0F), v(1000, 0.0F);
  for (int k = 1; k <= 2; ++k)
    adam_update(param.data(), grad.data(), m.data(), v.data(), 1000, {.lr = 0.01, .update = k});
  for (const float value : param) EXPECT_NEAR(value, 0.98F, 1e-6);
}

TEST(Adam, DecoupledDecayAndL2DifferAsTheirFormulasSay) {
  const auto once = [](bool decoupled) {
    float param = 2, m = 0, v = 0;
    const float grad = 0.5F;
    adam_update(&param, &grad, &m, &v, 1, {.lr = 0.1, .weight_decay = 0.1, .decoupled_decay = decoupled});
    return param;
  };
  EXPECT_NEAR(once(true), 2 * (1 - 0.01) - 0.1, 1e-6);
  EXPECT_NEAR(once(false), 2 - 0.1, 1e-6) << "L2 enters the gradient, whose size the first Adam step does not see";
}

TEST(Adam, EveryCutOfTheRangeGivesTheSameBits) {
  constexpr int kCount = 257;
  std::vector<float> grad(kCount), whole(kCount), m(kCount, 0.1F), v(kCount, 0.2F);
  for (int i = 0; i < kCount; ++i) {
    grad[i] = std::sin(static_cast<float>(i));
    whole[i] = std::cos(static_cast<float>(i));
  }
  const AdamStep step{.lr = 0.003, .weight_decay = 0.1, .update = 3, .grad_scale = 0.37F};
  for (const int cut : {1, 7, 16, 100}) {
    auto a = whole, am = m, av = v, b = whole, bm = m, bv = v;
    adam_update(a.data(), grad.data(), am.data(), av.data(), kCount, step);
    adam_update(b.data(), grad.data(), bm.data(), bv.data(), cut, step);
    adam_update(b.data() + cut, grad.data() + cut, bm.data() + cut, bv.data() + cut, kCount - cut, step);
    EXPECT_EQ(a, b) << "cut at " << cut;
    EXPECT_EQ(av, bv) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace intarsia::tensor
