#include "intarsia/plan/lr_schedule.h"

#include <gtest/gtest.h>

#include <array>
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
        ScheduleKind::kHfCosine, ScheduleKind::kHfCosineWithMinLr, ScheduleKind::kHfConstantWithWarmup,
        ScheduleKind::kHfCosineWithRestarts, ScheduleKind::kHfPolynomial, ScheduleKind::kHfInverseSqrt,
        ScheduleKind::kHfWarmupStableDecay}) {
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

// Values of transformers 5.24's get_scheduler: lr 1e-3, 100 updates.
TEST(LrSchedule, HuggingFacesRatesAreTransformersOwn) {
  struct Row {
    ScheduleKind kind;
    std::int64_t warmup;
    void (*set)(LrSchedule&);
    std::array<double, 12> rates;
  };
  const std::array<std::int64_t, 12> updates = {1, 2, 6, 11, 12, 40, 60, 77, 100, 101, 102, 130};
  const Row rows[] = {
      {ScheduleKind::kHfCosineWithRestarts,
       10,
       [](LrSchedule& s) { s.num_cycles = 3; },
       {0, 0.0001, 0.0005, 0.001, 0.000997260947684, 2.73905231586e-06, 0.000296631678462, 0.000904508497187,
        2.73905231586e-06, 0, 0, 0}},
      {ScheduleKind::kHfPolynomial,
       10,
       [](LrSchedule&) {},
       {0, 0.0001, 0.0005, 0.001, 0.00098889, 0.00067781, 0.00045561, 0.00026674, 1.121e-05, 1e-07, 1e-07, 1e-07}},
      {ScheduleKind::kHfPolynomial,
       10,
       [](LrSchedule& s) {
         s.power = 2.0;
         s.lr_end = 0.0001;
       },
       {0, 0.0001, 0.0005, 0.001, 0.000980111111111, 0.000513444444444, 0.000286777777778, 0.000164, 0.000100111111111,
        0.0001, 0.0001, 0.0001}},
      {ScheduleKind::kHfInverseSqrt,
       10,
       [](LrSchedule&) {},
       {0, 0.0001, 0.0005, 0.001, 0.000953462589246, 0.000506369683542, 0.000411693484796, 0.000362738125055,
        0.000317820863082, 0.000316227766017, 0.000314658387764, 0.000278423023195}},
      {ScheduleKind::kHfInverseSqrt,
       0,
       [](LrSchedule&) {},
       {0.001, 0.00099995000375, 0.000999750093711, 0.000999500374688, 0.000999450453334, 0.000998055685276,
        0.000997062989899, 0.000996221523726, 0.000995086453135, 0.00099503719021, 0.000994987934601,
        0.000993611740395}},
      {ScheduleKind::kHfInverseSqrt,
       10,
       [](LrSchedule& s) { s.timescale = 50; },
       {0, 0.0001, 0.0005, 0.001, 0.000990147542977, 0.000795557284176, 0.000710669054519, 0.000656532164299,
        0.000599760143904, 0.000597614304667, 0.000595491334175, 0.00054392829322}},
      {ScheduleKind::kHfWarmupStableDecay,
       10,
       [](LrSchedule& s) { s.fall_steps = 30; },
       {0, 0.0001, 0.0005, 0.001, 0.001, 0.001, 0.001, 0.000904508497187, 2.73905231586e-06, 0, 0, 0}},
      {ScheduleKind::kHfWarmupStableDecay,
       10,
       [](LrSchedule& s) {
         s.fall_steps = 30;
         s.fall_ramp = Ramp::kLinear;
         s.warmup_ramp = Ramp::kCosine;
         s.min_lr_ratio = 0.1;
       },
       {0.0001, 0.000122024567667, 0.00055, 0.001, 0.001, 0.001, 0.001, 0.00082, 0.00013, 0.0001, 0.0001, 0.0001}},
      {ScheduleKind::kHfWarmupStableDecay,
       10,
       [](LrSchedule& s) {
         s.fall_steps = 30;
         s.stable_steps = 20;
         s.fall_ramp = Ramp::kOneMinusSqrt;
         s.warmup_ramp = Ramp::kOneMinusSqrt;
         s.num_cycles = 0.5;
       },
       {0, 5.13167019495e-05, 0.000292893218813, 0.001, 0.001, 0.000452277442495, 1.68079197498e-05, 0, 0, 0, 0, 0}},
      {ScheduleKind::kHfCosine,
       10,
       [](LrSchedule& s) { s.num_cycles = 1.5; },
       {0, 0.0001, 0.0005, 0.001, 0.000997260947684, 2.73905231586e-06, 0.000703368321538, 0.000904508497187,
        2.73905231586e-06, 0, 2.73905231586e-06, 0.000997260947684}},
      {ScheduleKind::kHfCosineWithMinLr,
       10,
       [](LrSchedule& s) { s.min_lr_ratio = 0.1; },
       {0, 0.0001, 0.0005, 0.001, 0.000999725872159, 0.000788463668905, 0.000487372104568, 0.000248891227139,
        0.000100274127841, 0.0001, 0.000100274127841, 0.000311536331095}}};
  for (const Row& row : rows) {
    LrSchedule s = make(row.kind, row.warmup, 100);
    if (row.kind == ScheduleKind::kHfCosineWithRestarts) s.num_cycles = 1;
    row.set(s);
    for (std::size_t i = 0; i < updates.size(); ++i)
      EXPECT_NEAR(s.lr_at_update(updates[i]), row.rates[i], 1e-14)
          << "row " << &row - rows << ", update " << updates[i];
  }
}

TEST(LrSchedule, OnlySomeShapesFollowTheLengthOfTheRun) {
  for (const ScheduleKind kind : {ScheduleKind::kHfLinear, ScheduleKind::kHfPolynomial, ScheduleKind::kWarmupDecayLR,
                                  ScheduleKind::kHfWarmupStableDecay})
    EXPECT_TRUE(make(kind, 0).ends_with_the_run());
  for (const ScheduleKind kind : {ScheduleKind::kHfInverseSqrt, ScheduleKind::kWarmupLR, ScheduleKind::kList})
    EXPECT_FALSE(make(kind, 0).ends_with_the_run());
  LrSchedule stable = make(ScheduleKind::kHfWarmupStableDecay, 0);
  stable.stable_steps = 10;
  EXPECT_FALSE(stable.ends_with_the_run());
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
  config.scheduler.type = "staircase";
  EXPECT_THROW(schedule_of(config), Error);
}

}  // namespace
}  // namespace intarsia::plan
