#include "intarsia/models/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace intarsia::models {
namespace {

using Places = std::vector<std::int64_t>;

at::Tensor drop(const at::Tensor& x, double probability, const Places& places, std::uint64_t key = 7) {
  return drop_out(x, key, probability, places);
}

TEST(DropOut, DropsTheShareAndKeepsTheMean) {
  for (const double probability : {0.05, 0.5, 0.9}) {
    const at::Tensor out = drop(at::ones({4, 100, 50}), probability, {0, 1, 2, 3});
    // 20,000 draws: four standard deviations of the share are at most 0.0142.
    EXPECT_NEAR(out.eq(0).to(at::kDouble).mean().item<double>(), probability, 0.0142);
    EXPECT_NEAR(out.mean().item<double>(), 1, 0.0142 / (1 - probability));
    EXPECT_TRUE(at::allclose(out.masked_select(out.ne(0)), at::scalar_tensor(1 / (1 - probability))));
  }
}

TEST(DropOut, ASamplesChoiceDependsOnItsPlaceAlone) {
  const at::Tensor x = at::ones({3, 5, 6});  // rows that no draw of four fills
  const at::Tensor together = drop(x, 0.5, {10, 11, 12});
  EXPECT_TRUE(at::equal(drop(x.narrow(0, 0, 1), 0.5, {11})[0], together[1])) << "whatever else is in the batch";
  EXPECT_TRUE(at::equal(drop(x.narrow(1, 0, 3), 0.5, {10, 11, 12}), together.narrow(1, 0, 3))) << "and however long";
  EXPECT_FALSE(at::equal(together[0], together[1]));
  EXPECT_FALSE(at::equal(together[0][0], together[0][1]));
  EXPECT_FALSE(at::equal(drop(x, 0.5, {10, 11, 12}, 8), together)) << "another place in the model";
}

TEST(DropOut, TheGradientIsDroppedAlike) {
  const at::Tensor x = at::randn({2, 7, 9}).requires_grad_(true);
  const at::Tensor out = drop(x, 0.3, {4, 5});
  torch::autograd::backward({out}, {at::ones_like(out)});
  EXPECT_TRUE(at::allclose(x.grad() * x.detach(), out.detach()));
  EXPECT_TRUE(at::equal(x.grad().eq(0), out.detach().eq(0)));
}

TEST(DropOut, In16BitsTheSameElementsAreDropped) {
  const at::Tensor x = at::randn({1, 40, 12});
  const at::Tensor wide = drop(x, 0.2, {3}), narrow = drop(x.to(at::kBFloat16), 0.2, {3});
  EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(narrow.eq(0), wide.eq(0)));
  EXPECT_TRUE(at::allclose(narrow.to(at::kFloat), wide, 0.01));
}

}  // namespace
}  // namespace intarsia::models
