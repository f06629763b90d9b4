#include <gtest/gtest.h>

#include "intarsia/optim/clipping.h"

namespace intarsia::optim {
namespace {

// behaviours, kind 1: elements 3 and 4, limit 1: norm 5, applied 0.6 and 0.8.
TEST(Clipping, ScalesTheWholeGradientToTheLimit) {
  const Clipping result = clip(9 + 16, 1, 1.0);
  EXPECT_EQ(result.norm, 5);
  EXPECT_NEAR(3 * result.factor, 0.6, 1e-6);
  EXPECT_NEAR(4 * result.factor, 0.8, 1e-6);
}

TEST(Clipping, ZeroIsOffAndSmallNormsStay) {
  EXPECT_EQ(clip(25, 1, 0).factor, 1);
  EXPECT_EQ(clip(25, 0.1, 1).factor, 1);
}

TEST(Clipping, AppliesATinyLimit) { EXPECT_LT(clip(25, 1, 1e-9).factor * 5, 1.1e-9); }

}  // namespace
}  // namespace intarsia::optim
