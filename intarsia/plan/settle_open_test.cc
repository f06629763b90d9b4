#include "intarsia/plan/settle_open.h"

#include <gtest/gtest.h>

#include "intarsia/base/error.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

config::Resolved resolved(int ranks, bool micro, bool stage, std::int64_t total = 0) {
  config::Resolved out;
  config::TrainConfig& config = out.config;
  config.run.ranks = ranks;
  config.run.seq_len = 64;
  config.batch.micro_is_open = micro;
  config.batch.total_is_given = total > 0;
  config.batch.train_batch_size = total > 0 ? total : ranks;
  config.batch.micro_batch_size = total > 0 ? total / ranks : 1;
  config.zero.stage_is_open = stage;
  return out;
}

const formats::HfConfig kModel = preset("llama-tiny").value();

OpenRequest host(std::int64_t bytes, int ranks) { return {.limit = {bytes, "a test"}, .local_ranks = ranks}; }

std::int64_t need(const config::Resolved& run) {
  const RunPlan plan = make_run_plan(run.config, kModel, 64, 1);
  return host_need(replay_step(plan, kModel), static_cast<int>(run.config.run.ranks)).host;
}

TEST(SettleOpen, LeavesAloneWhatIsSettled) {
  config::Resolved run = resolved(2, false, false);
  EXPECT_FALSE(settle_open(run, kModel, host(1, 2)));
  EXPECT_TRUE(run.reports.empty());
}

TEST(SettleOpen, KeepsTheTotalThatIsGiven) {
  config::Resolved run = resolved(4, true, false, 96);
  ASSERT_TRUE(settle_open(run, kModel, host(std::int64_t{4} << 30, 4)));
  const config::BatchConfig& batch = run.config.batch;
  EXPECT_EQ(batch.micro_batch_size * batch.accumulation * 4, 96);
  EXPECT_FALSE(batch.micro_is_open);
  EXPECT_EQ(run.values["train_micro_batch_size_per_gpu"], std::to_string(batch.micro_batch_size));
  EXPECT_EQ(run.origins["train_micro_batch_size_per_gpu"], "auto (the planner)");
  EXPECT_NE(run.reports.back().message.find("the planner chose micro-batch"), std::string::npos);
}

TEST(SettleOpen, ChoosesWhatFitsAndNothingThatDoesNot) {
  // The limit is what the free choice needs, less and less of it, down to where one sample is too much.
  config::Resolved roomy = resolved(2, true, false, 256);
  settle_open(roomy, kModel, host(std::int64_t{64} << 30, 2));
  ASSERT_GT(roomy.config.batch.micro_batch_size, 1);
  const std::int64_t most = need(roomy);
  config::Resolved tight = resolved(2, true, false, 256);
  settle_open(tight, kModel, host(most, 2));  // the margin is missing
  EXPECT_LT(tight.config.batch.micro_batch_size, roomy.config.batch.micro_batch_size);
  EXPECT_LE(need(tight), 0.95 * static_cast<double>(most));
  config::Resolved none = resolved(2, true, false, 256);
  settle_open(none, kModel, host(1 << 20, 2));
  EXPECT_EQ(none.config.batch.micro_batch_size, 1);
  EXPECT_NE(none.reports.back().message.find("none fits"), std::string::npos);
}

TEST(SettleOpen, TakesAStageThatFits) {
  for (int stage = 0; stage < 4; ++stage) {
    config::Resolved fixed = resolved(4, false, false);
    fixed.config.zero.stage = stage;
    config::Resolved open = resolved(4, false, true);
    settle_open(open, kModel, host(static_cast<std::int64_t>(1.06 * static_cast<double>(need(fixed))), 4));
    EXPECT_LE(need(open), need(fixed)) << "stage " << stage << " fits";
  }
  config::Resolved alone = resolved(1, false, true);
  settle_open(alone, kModel, host(std::int64_t{4} << 30, 1));
  EXPECT_EQ(alone.config.zero.stage, 0);
}

TEST(SettleOpen, OverlapFollowsTheStageUnlessItWasAskedFor) {
  config::Resolved run = resolved(4, false, true);
  settle_open(run, kModel, host(std::int64_t{4} << 30, 4));
  EXPECT_EQ(run.config.zero.overlap_comm, run.config.zero.stage == 3);
  config::Resolved asked = resolved(4, false, true);
  asked.config.zero.overlap_is_default = false;
  asked.config.zero.overlap_comm = true;
  settle_open(asked, kModel, host(std::int64_t{4} << 30, 4));
  EXPECT_TRUE(asked.config.zero.overlap_comm);
}

TEST(SettleOpen, SaysTheSameEachTime) {
  const auto once = [] {
    config::Resolved run = resolved(4, true, true);
    settle_open(run, kModel, host(std::int64_t{1} << 30, 4));
    return run.reports.back().message;
  };
  EXPECT_EQ(once(), once());
}

TEST(SettleOpen, RefusesBitsThatWouldFollowTheHost) {
  config::Resolved run = resolved(2, true, false, 8);
  run.config.run.reproducible = true;
  EXPECT_THROW(settle_open(run, kModel, host(std::int64_t{1} << 30, 2)), Error);
}

}  // namespace
}  // namespace intarsia::plan
