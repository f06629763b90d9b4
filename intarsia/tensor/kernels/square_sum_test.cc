#include "intarsia/tensor/kernels/square_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace intarsia::tensor {
namespace {

TEST(SquareSum, AddsSquaresOfAnyLength) {
  EXPECT_EQ(square_sum(nullptr, 0), 0);
  const std::vector<float> values(3001, 2.0F);
  EXPECT_EQ(square_sum(values.data(), 1), 4);
  EXPECT_EQ(square_sum(values.data(), 3001), 12004);
}

TEST(SquareSum, LetsInfinityThrough) {
  std::vector<float> values(100, 1.0F);
  values[63] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(square_sum(values.data(), 100)));
}

}  // namespace
}  // namespace intarsia::tensor
