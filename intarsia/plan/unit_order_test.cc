#include "intarsia/plan/unit_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace intarsia::plan {
namespace {

std::vector<int> predictions(UnitOrder& order, const std::vector<int>& units) {
  std::vector<int> out;
  out.reserve(units.size());
  for (const int unit : units) out.push_back(order.follow(unit));
  return out;
}

TEST(UnitOrder, KnowsNothingOfTheFirstMicroStep) {
  UnitOrder order;
  EXPECT_EQ(order.next(), -1);
  EXPECT_EQ(predictions(order, {0, 1, 2}), (std::vector{-1, -1, -1}));
}

TEST(UnitOrder, FollowsTheOneBefore) {
  UnitOrder order;
  predictions(order, {0, 1, 2, 2, 1});
  order.end();
  EXPECT_EQ(predictions(order, {0, 1, 2, 2, 1}), (std::vector{1, 2, 2, 1, -1}));
}

TEST(UnitOrder, IsSilentAfterASurpriseAndLearnsTheNewOrder) {
  UnitOrder order;
  predictions(order, {0, 1, 2});
  order.end();
  EXPECT_EQ(predictions(order, {0, 2, 1}), (std::vector{1, -1, -1}));
  order.end();
  EXPECT_EQ(predictions(order, {0, 2, 1}), (std::vector{2, 1, -1}));
}

TEST(UnitOrder, StartsAgainAfterAPassWithoutBackward) {
  UnitOrder order;
  predictions(order, {0, 1, 2, 1, 0});
  order.end();
  EXPECT_EQ(predictions(order, {0, 1, 2}), (std::vector{1, 2, 1}));  // evaluation
  EXPECT_EQ(predictions(order, {0, 1, 2, 1, 0}), (std::vector{1, 2, 1, 0, -1}));
  order.end();
  EXPECT_EQ(predictions(order, {0, 1}), (std::vector{1, 2}));
}

}  // namespace
}  // namespace intarsia::plan
