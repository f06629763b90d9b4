#include "intarsia/plan/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

LrSchedule make(ScheduleKind kind, std::int64_t warmup, std::int64_t total = 0) {
  LrSchedule schedule;
  schedule.kind = kind;
  schedule.warmup_steps = warmup;
  schedule.total_steps = total;
  return schedule;
}

TEST(LrSchedule, WarmupLrCountsAsDeepSpeedDoes) {
  LrSchedule s = make(ScheduleKind::kWarmupLR, 10);
  s.log_warmup = false;
  EXPECT_EQ(s.lr_at_update(1), 0);
  EXPECT_EQ(s.lr_at_update(2), 0);
  EXPECT_DOUBLE_EQ(s.lr_at_update(3), 1e-4);
  EXPECT_DOUBLE_EQ(s.lr_at_update(7), 5e-4);
  EXPECT_LT(s.lr_at_update(11), 1e-3);
  EXPECT_EQ(s.lr_at_update(12), 1e-3);
  EXPECT_EQ(s.lr_at_update(1000), 1e-3);
}

TEST(LrSchedule, ShortWarmupsAreFinite) {
  for (const ScheduleKind kind :
       {ScheduleKind::kWarmupLR, ScheduleKind::kWarmupDecayLR, ScheduleKind::kWarmupCosineLR, ScheduleKind::kHfLinear,
        ScheduleKind::kHfCosine, ScheduleKind::kHfCosineWithMinLr, ScheduleKind::kHfConstantWithWarmup}) {
    for (const bool log : {true, false}) {
      for (const std::int64_t warmup : {0, 1, 2}) {
        for (const std::int64_t total : {0, 1, 2, 3}) {
          LrSchedule s = make(kind, warmup, total);
          s.log_warmup = log;
          for (std::int64_t update = 1; update < 8; ++update) {
            EXPECT_TRUE(std::isfinite(s.lr_at_update(update)));
            EXPECT_GE(s.lr_at_update(update), 0);
            EXPECT_LE(s.lr_at_update(update), 1e-3);
          }
        }
      }
    }
  }
}

TEST(LrSchedule, LogWarmupFollowsTheLogarithm) {
  LrSchedule s = make(ScheduleKind::kWarmupLR, 500);
  s.warmup_max_lr = 3e-5;
  EXPECT_NEAR(s.lr_at_update(3), 3.346054181932694e-06, 1e-15);
  EXPECT_NEAR(s.lr_at_update(100), 2.2182186442140564e-05, 1e-14);
}

TEST(LrSchedule, WarmupDecayEndsAtTheMinimum) {
  LrSchedule s = make(ScheduleKind::kWarmupDecayLR, 10, 150);
  s.log_warmup = false;
  s.warmup_max_lr = 3e-4;
  s.warmup_min_lr = 1e-5;
  EXPECT_DOUBLE_EQ(s.lr_at_update(12), 3e-4);  // t = 10 = N
  EXPECT_DOUBLE_EQ(s.lr_at_update(152), 1e-5);
  EXPECT_DOUBLE_EQ(s.lr_at_update(500), 1e-5);
}

TEST(LrSchedule, WarmupCosineStartsAtZeroWhateverTheMinimumRatio) {
  LrSchedule s = make(ScheduleKind::kWarmupCosineLR, 20, 120);
  s.base_lr = 6e-4;
  s.log_warmup = false;
  s.warmup_min_ratio = 0.5;
  s.cos_min_ratio = 0.1;
  EXPECT_EQ(s.lr_at_update(1), 0);
  EXPECT_DOUBLE_EQ(s.lr_at_update(2), 3e-4);
  EXPECT_NEAR(s.lr_at_update(1000), 6e-5, 1e-18);
}

TEST(LrSchedule, HuggingFaceUsesTheMultiplierOfTheUpdateBefore) {
  LrSchedule linear = make(ScheduleKind::kHfLinear, 4, 12);
  EXPECT_EQ(linear.lr_at_update(1), 0);
  EXPECT_DOUBLE_EQ(linear.lr_at_update(3), 5e-4);
  EXPECT_DOUBLE_EQ(linear.lr_at_update(5), 1e-3);
  EXPECT_DOUBLE_EQ(linear.lr_at_update(9), 5e-4);
  EXPECT_EQ(linear.lr_at_update(13), 0);
  EXPECT_EQ(linear.lr_at_update(20), 0);
  LrSchedule constant = make(ScheduleKind::kHfConstantWithWarmup, 4);
  EXPECT_DOUBLE_EQ(constant.lr_at_update(2), 2.5e-4);
  EXPECT_DOUBLE_EQ(constant.lr_at_update(50), 1e-3);
  LrSchedule cosine = make(ScheduleKind::kHfCosine, 30, 1000);
  cosine.base_lr = 2e-5;
  EXPECT_NEAR(cosine.lr_at_update(100), 1.9751334064160708e-05, 1e-19);
  LrSchedule floored = make(ScheduleKind::kHfCosineWithMinLr, 0, 100);
  floored.min_lr_ratio = 0.1;
  EXPECT_DOUBLE_EQ(floored.lr_at_update(1), 1e-3);
  EXPECT_DOUBLE_EQ(floored.lr_at_update(51), 5.5e-4);
  EXPECT_DOUBLE_EQ(floored.lr_at_update(101), 1e-4);
}

TEST(LrSchedule, ListHoldsItsLastValue) {
  LrSchedule s = make(ScheduleKind::kList, 0);
  EXPECT_THROW(s.lr_at_update(1), Error);
  s.list = {0.1, 0.2, 0.3};
  EXPECT_EQ(s.lr_at_update(1), 0.1);
  EXPECT_EQ(s.lr_at_update(3), 0.3);
  EXPECT_EQ(s.lr_at_update(9), 0.3);
}

TEST(LrSchedule, OneCycleGoesUpAndDownAndDecays) {
  LrSchedule s = make(ScheduleKind::kOneCycle, 0);
  s.cycle_max_lr = 1;
  s.cycle_min_lr = 0.1;
  s.first_steps = s.second_steps = 4;
  EXPECT_DOUBLE_EQ(s.lr_at_update(1), 0.1);
  EXPECT_DOUBLE_EQ(s.lr_at_update(5), 1);       // t + 1 = 4: the top
  EXPECT_DOUBLE_EQ(s.lr_at_update(7), 0.55);    // half way down
  EXPECT_DOUBLE_EQ(s.beta1_at_update(5), 0.8);  // least momentum at the highest rate
  EXPECT_DOUBLE_EQ(s.lr_at_update(50), 0.1);    // no decay step size: no decay
  s.decay_steps = 2;
  s.decay_lr_rate = 1;
  EXPECT_DOUBLE_EQ(s.lr_at_update(11), 0.1 / 2);  // t = 9: two updates after the cycle
}

TEST(LrSchedule, RangeTestClimbsByTheStep) {
  LrSchedule s = make(ScheduleKind::kLrRangeTest, 0);
  s.range_steps = 10;
  EXPECT_DOUBLE_EQ(s.lr_at_update(1), 1e-3);
  EXPECT_DOUBLE_EQ(s.lr_at_update(11), 2e-3);
  s.range_staircase = true;
  EXPECT_DOUBLE_EQ(s.lr_at_update(10), 1e-3);
}

TEST(LrSchedule, WarmupMaximaDefaultAsInDeepSpeed) {
  config::TrainConfig config;
  config.optimizer.lr = 5e-6;
  config.scheduler.type = "WarmupLR";
  EXPECT_EQ(schedule_of(config).warmup_max_lr, 5e-6);
  config.scheduler.type = "WarmupDecayLR";
  EXPECT_EQ(schedule_of(config).warmup_max_lr, 1e-3);
  config.scheduler.type = "polynomial";
  EXPECT_THROW(schedule_of(config), Error);
}

}  // namespace
}  // namespace intarsia::plan
