#include "intarsia/optim/loss_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace intarsia::optim {
namespace {

plan::LossScalePlan dynamic_plan() { return {.dynamic = true, .initial = 65536}; }

std::vector<double> scales_after(const plan::LossScalePlan& plan, const std::vector<bool>& overflows) {
  LossScale scale(plan);
  std::vector<double> after;
  for (const bool overflow : overflows) {
    scale.update(overflow);
    after.push_back(scale.scale());
  }
  return after;
}

// behaviours, kind 3.
TEST(LossScale, FourOverflowsInARowWithHysteresisThree) {
  plan::LossScalePlan plan = dynamic_plan();
  plan.hysteresis = 3;
  EXPECT_EQ(scales_after(plan, {true, true, true, true}), (std::vector<double>{65536, 65536, 32768, 16384}));
}

std::vector<double> five_overflows_ten_steps_apart(const plan::LossScalePlan& plan) {
  LossScale scale(plan);
  std::vector<double> after;
  for (int step = 1; step <= 50; ++step) {
    scale.update(step % 10 == 0);
    if (step % 10 == 0) after.push_back(scale.scale());
  }
  return after;
}

TEST(LossScale, OneOverflowEveryTenStepsUsesTheHysteresisUp) {
  EXPECT_EQ(five_overflows_ten_steps_apart(dynamic_plan()), (std::vector<double>{65536, 32768, 16384, 8192, 4096}));
}

TEST(LossScale, ConsecutiveHysteresisForgivesSingleOverflows) {
  plan::LossScalePlan plan = dynamic_plan();
  plan.consecutive_hysteresis = true;
  EXPECT_EQ(five_overflows_ten_steps_apart(plan), std::vector<double>(5, 65536));
}

TEST(LossScale, GrowsAfterAWindowWithoutOverflow) {
  plan::LossScalePlan plan = dynamic_plan();
  plan.window = 3;
  // The first growth is at iteration `window`, that is, after window + 1 steps.
  EXPECT_EQ(scales_after(plan, {false, false, false, false, false}),
            (std::vector<double>{65536, 65536, 65536, 131072, 131072}));
}

TEST(LossScale, StopsAtItsMinimumAndSaysSo) {
  plan::LossScalePlan plan = dynamic_plan();
  plan.initial = 2;
  plan.hysteresis = 1;
  LossScale scale(plan);
  EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.update(true));
  EXPECT_EQ(scale.scale(), 1);
}

TEST(LossScale, AStaticScaleNeverMoves) {
  LossScale scale({.initial = 1024});
  EXPECT_FALSE(scale.update(true));
  EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.scale(), 1024);
}

TEST(LossScale, ARestoredOneGoesOnAsTheOther) {
  plan::LossScalePlan plan = dynamic_plan();
  plan.hysteresis = 3;
  LossScale first(plan);
  first.update(true);
  LossScale second(plan);
  second.restore(first.state());
  for (int step = 0; step < 4; ++step) {
    first.update(true);
    second.update(true);
    EXPECT_EQ(first.state(), second.state());
  }
}

}  // namespace
}  // namespace intarsia::optim
