#include "intarsia/nn/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/plan/logit_tiles.h"
#include "intarsia/tensor/kernels/product.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::nn {
namespace {

struct Case {
  std::int64_t rows, width, vocab;
};

class LinearCrossEntropy : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(5); }
  void make(const Case& c) {
    x = at::randn({c.rows, c.width}).to(GetParam()).requires_grad_();
    weight = (at::randn({c.vocab, c.width}) * 0.3).to(GetParam()).requires_grad_();
    targets = at::randint(0, c.vocab, {c.rows}, at::kLong);
    for (std::int64_t row = 0; row < c.rows; row += 3) targets[row] = -100;
  }
  at::Tensor x, weight, targets;
};

// One tile, several tiles of columns with an odd last one, several of rows; all of the logits kept and not.
TEST_P(LinearCrossEntropy, EqualsThePlainOneInTilesAndWithout) {
  for (const Case& c :
       {Case{1, 16, 3}, Case{37, 24, 130}, Case{50, 16, 3001}, Case{2100, 16, 1100}, Case{2500, 16, 70}}) {
    make(c);
    const at::Tensor seed = at::full({}, 0.25);
    const at::Tensor loss = linear_cross_entropy(x, weight, targets);
    const auto mine = torch::autograd::grad({loss}, {x, weight}, {seed});
    const at::Tensor wide_x = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor wide_weight = weight.detach().to(at::kDouble).requires_grad_();
    const at::Tensor wanted =
        at::cross_entropy_loss(at::linear(wide_x, wide_weight), targets, {}, at::Reduction::Sum, -100);
    const auto grads = torch::autograd::grad({wanted}, {wide_x, wide_weight}, {seed.to(at::kDouble)});
    const double eps = GetParam() == at::kBFloat16 ? 1.0 / 64 : 1e-5;
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), eps * (std::abs(wanted.item<double>()) + 1)) << c.rows;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(mine[i].scalar_type(), GetParam());
      const double scale = grads[i].abs().max().item<double>() + 1e-6;
      EXPECT_LT((mine[i].to(at::kDouble) - grads[i]).abs().max().item<double>(), eps * scale) << i << " of " << c.rows;
    }
  }
}

TEST_P(LinearCrossEntropy, OfFrozenWeightsAndWithoutGradientsIsTheSameLoss) {
  make({100, 16, 1500});
  const at::Tensor loss = linear_cross_entropy(x, weight, targets);
  const at::Tensor frozen = linear_cross_entropy(x, weight.detach(), targets);
  EXPECT_EQ(loss.item<float>(), frozen.item<float>());
  EXPECT_TRUE(torch::autograd::grad({frozen}, {x})[0].defined());
  EXPECT_EQ(loss.item<float>(), linear_cross_entropy(x.detach(), weight.detach(), targets).item<float>());
}

TEST_P(LinearCrossEntropy, WithoutTargetsIsZeroWithZeroGradients) {
  make({20, 16, 40});
  const at::Tensor loss = linear_cross_entropy(x, weight, at::full({20}, -100, at::kLong));
  const auto grads = torch::autograd::grad({loss}, {x, weight});
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_EQ(grads[0].abs().sum().item<float>() + grads[1].abs().sum().item<float>(), 0);
}

TEST_P(LinearCrossEntropy, NotANumberShowsInTheLoss) {
  make({20, 16, 3000});
  {
    const at::NoGradGuard no_grad;
    weight[2500][3] = NAN;
  }
  EXPECT_TRUE(std::isnan(linear_cross_entropy(x, weight, targets).item<float>()));
}

TEST_P(LinearCrossEntropy, RefusesASecondBackward) {
  make({20, 16, 40});
  const at::Tensor loss = linear_cross_entropy(x, weight, targets);
  torch::autograd::grad({loss}, {x}, {}, true);
  EXPECT_THROW(torch::autograd::grad({loss}, {x}), Error);
}

// A vocabulary of 128,256: beside gradients one tile of logits, where the plain one holds all of them five times.
TEST_P(LinearCrossEntropy, HoldsOneTileOfALargeVocabularyAndHasThePlainLoss) {
  constexpr std::int64_t kRows = 140;
  tensor::install_memory_meter();
  make({kRows, 16, 128256});
  const auto bytes = static_cast<std::int64_t>(x.element_size());
  tensor::set_memory_rank(0);
  tensor::reset_memory_peak(0);
  const std::int64_t before = tensor::read_memory(0).total;
  const at::Tensor loss = linear_cross_entropy(x, weight, targets);
  const std::int64_t above = tensor::read_memory(0).total_peak - before - weight.numel() * bytes;
  // ATen's products of bf16 take a copy of the tile in fp32 on some processors.
  const std::int64_t tile_bytes = tensor::product_is_faster_for_bf16() ? bytes : 4;
  EXPECT_LT(above, kRows * plan::kLogitTileColumns * tile_bytes + kRows * (16 * 8 + 64));
  EXPECT_LT(above * 50, kRows * 128256 * 4 * 2) << "two of the plain one's five";
  const auto mine = torch::autograd::grad({loss}, {x, weight});
  const at::Tensor wanted = plain_linear_cross_entropy(x, weight, targets);
  const auto grads = torch::autograd::grad({wanted}, {x, weight});
  const double eps = GetParam() == at::kBFloat16 ? 1.0 / 64 : 1e-4;
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-3 * wanted.item<double>());
  for (int i = 0; i < 2; ++i)
    EXPECT_LT((mine[i] - grads[i]).abs().max().item<double>(), eps * grads[i].abs().max().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Each, LinearCrossEntropy, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& of) { return c10::toString(of.param); });

}  // namespace
}  // namespace intarsia::nn
