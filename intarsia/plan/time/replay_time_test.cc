#include "intarsia/plan/time/replay_time.h"

#include <gtest/gtest.h>

#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

const formats::HfConfig kModel = preset("llama-34m").value();

struct Case {
  int stage = 3;
  std::int64_t accumulation = 1;
  bool overlap = false;
  double link = 1e9;  // bytes/s between hosts
};

// Two hosts of one rank each.
StepSeconds seconds_of(const Case& c) {
  config::TrainConfig config;
  config.run.ranks = 2;
  config.zero.stage = c.stage;
  config.batch.accumulation = c.accumulation;
  RunPlan plan = make_run_plan(config, kModel, 128, 1);
  plan.backend = CommBackend::kGloo;
  plan.overlap = c.overlap;
  ClusterSpec cluster = find_cluster("cpu");
  cluster.devices_per_host = 1;
  cluster.inter.bandwidth = c.link;
  cluster.inter.efficiency = 1;
  return step_seconds(replay_step(plan, kModel), plan, cluster, 1);
}

double computed(const StepSeconds& s) { return s.matrix + s.attention + s.elementwise + s.dispatch + s.update; }

TEST(ReplayTime, WithoutOverlapAStepIsTheSumOfItsParts) {
  for (const int stage : {0, 1, 2, 3}) {
    const StepSeconds slow = seconds_of({.stage = stage, .link = 1e8}),
                      fast = seconds_of({.stage = stage, .link = 2e8});
    EXPECT_DOUBLE_EQ(computed(slow), computed(fast)) << stage;
    EXPECT_NEAR(slow.traffic / fast.traffic, 2, 0.01) << stage;
    EXPECT_LT(slow.hidden, 1e-9) << stage;
  }
}

TEST(ReplayTime, OverlapHidesTrafficBehindComputation) {
  for (const int stage : {2, 3}) {
    const StepSeconds plain = seconds_of({.stage = stage}), hidden = seconds_of({.stage = stage, .overlap = true});
    EXPECT_NEAR(hidden.traffic + hidden.hidden, plain.traffic, 1e-9 + 0.05 * plain.traffic) << stage;
    EXPECT_GT(hidden.hidden, 0.2 * plain.traffic) << stage;
    EXPECT_LT(hidden.total(), plain.total()) << stage;
  }
}

TEST(ReplayTime, OverlapHidesNoMoreThanIsComputed) {
  const StepSeconds plain = seconds_of({.link = 1e6}), hidden = seconds_of({.overlap = true, .link = 1e6});
  EXPECT_LE(hidden.hidden, computed(hidden) * 1.001);
  EXPECT_GT(hidden.traffic, 0.9 * plain.traffic);
}

TEST(ReplayTime, LaterMicroStepsAreLikeTheSecond) {
  for (const bool overlap : {false, true}) {
    const auto total = [&](std::int64_t steps) {
      return seconds_of({.stage = 2, .accumulation = steps, .overlap = overlap}).total();
    };
    EXPECT_NEAR(total(4) - total(3), total(3) - total(2), 1e-9);
  }
}

TEST(ReplayTime, ARankThatHasItsHostForItselfIsAsFastAsMeasuredAlone) {
  config::TrainConfig config;
  const RunPlan plan = make_run_plan(config, kModel, 128, 1);
  const StepReplay replay = replay_step(plan, kModel);
  ClusterSpec cluster = find_cluster("cpu");
  const StepSeconds before = step_seconds(replay, plan, cluster, 1);
  cluster.device.alone_matrix = 2;
  EXPECT_NEAR(step_seconds(replay, plan, cluster, 1).matrix, before.matrix / 2, 1e-12);
  EXPECT_EQ(step_seconds(replay, plan, cluster, 2).matrix, before.matrix);
}

TEST(ReplayTime, SumsOperationsByKind) {
  config::TrainConfig config;
  config.batch.accumulation = 3;
  const RunPlan plan = make_run_plan(config, kModel, 128, 1);
  const WorkSum three = sum_work(replay_step(plan, kModel), plan);
  config.batch.accumulation = 1;
  const RunPlan single = make_run_plan(config, kModel, 128, 1);
  const WorkSum one = sum_work(replay_step(single, kModel), single);
  EXPECT_DOUBLE_EQ(three.matrix_flops, 3 * one.matrix_flops);
  EXPECT_DOUBLE_EQ(three.products, 3 * one.products);
  EXPECT_GT(one.operations, one.products);
}

}  // namespace
}  // namespace intarsia::plan
