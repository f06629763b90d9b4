#include "intarsia/plan/sim/pipeline_sim.h"

#include <gtest/gtest.h>

#include <set>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

// F = 1, B = 2 in halves of 1, no time for sending; a chunk of v takes 1 / v of it.
PipelineRun run(PipelineSchedule schedule, int ranks, int micro_batches, int chunks = 1) {
  const PipelinePlan plan = make_pipeline(schedule, ranks, micro_batches, chunks);
  const double each = 1.0 / plan.chunks;
  return run_pipeline(plan, {.forward = each, .input_grad = each, .weight_grad = each});
}

struct Row {
  int ranks, micro_batches;
  double flushed, two_chunks, four_chunks, zb_h1, zbv;
};
// Computed by another event simulation of the same definitions.
constexpr Row kRows[] = {{4, 8, 33, 28.5, 26.25, 27, 25.5},
                         {4, 16, 57, 52.5, 50.25, 51, 49.5},
                         {8, 16, 69, 58.5, 53.25, 55, 51.5},
                         {8, 32, 117, 106.5, 101.25, 103, 99.5}};

TEST(PipelineRun, TakesAsLongAsReferenceSimulations) {
  for (const Row& row : kRows) {
    const int p = row.ranks, m = row.micro_batches;
    EXPECT_DOUBLE_EQ(run(PipelineSchedule::kGpipe, p, m).seconds, row.flushed) << p << " " << m;
    EXPECT_DOUBLE_EQ(run(PipelineSchedule::kOneFOneB, p, m).seconds, row.flushed) << p << " " << m;
    EXPECT_DOUBLE_EQ(run(PipelineSchedule::kInterleaved, p, m, 2).seconds, row.two_chunks) << p << " " << m;
    EXPECT_DOUBLE_EQ(run(PipelineSchedule::kInterleaved, p, m, 4).seconds, row.four_chunks) << p << " " << m;
    EXPECT_DOUBLE_EQ(run(PipelineSchedule::kZeroBubbleH1, p, m).seconds, row.zb_h1) << p << " " << m;
    EXPECT_DOUBLE_EQ(run(PipelineSchedule::kZeroBubbleV, p, m).seconds, row.zbv) << p << " " << m;
  }
}

TEST(PipelineRun, KeepsAsManyActivationsAsThePapersSay) {
  EXPECT_EQ(run(PipelineSchedule::kGpipe, 4, 8).peak_in_flight, (std::vector<int>{8, 8, 8, 8}));
  EXPECT_EQ(run(PipelineSchedule::kOneFOneB, 4, 8).peak_in_flight, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(run(PipelineSchedule::kInterleaved, 4, 8, 2).peak_in_flight, (std::vector<int>{11, 9, 7, 5}));
  for (const int peak : run(PipelineSchedule::kZeroBubbleH1, 4, 8).peak_in_flight) EXPECT_LE(peak, 4);
  for (const int peak : run(PipelineSchedule::kZeroBubbleV, 4, 8).peak_in_flight) EXPECT_LE(peak, 8);  // half chunks
}

TEST(PipelineRun, DoesEverythingOnceOnEveryRank) {
  for (const auto schedule : {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB, PipelineSchedule::kInterleaved,
                              PipelineSchedule::kZeroBubbleH1, PipelineSchedule::kZeroBubbleV}) {
    const PipelinePlan plan = make_pipeline(schedule, 4, 8, 2);
    for (const auto& actions : plan.actions) {
      std::set<std::tuple<PipelineOp, int, int>> seen;
      for (const PipelineAction& a : actions) EXPECT_TRUE(seen.emplace(a.op, a.micro, a.chunk).second);
      const bool halves = schedule >= PipelineSchedule::kZeroBubbleH1;
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(8 * plan.chunks * (halves ? 3 : 2))) << schedule_name(schedule);
    }
  }
}

TEST(PipelineRun, OneRankHasNoBubble) {
  const PipelineRun alone = run(PipelineSchedule::kOneFOneB, 1, 5);
  EXPECT_DOUBLE_EQ(alone.seconds, 15);
  EXPECT_DOUBLE_EQ(alone.busy, 1);
}

TEST(PipelineRun, WaitsForWhatIsSent) {
  const PipelinePlan plan = make_pipeline(PipelineSchedule::kOneFOneB, 2, 1);
  EXPECT_DOUBLE_EQ(run_pipeline(plan, {.send = 0.5}).seconds, 2 + 4 + 2 * 0.5);
}

TEST(Pipeline, RefusesWhatASchedulesRuleForbids) {
  EXPECT_THROW(make_pipeline(PipelineSchedule::kInterleaved, 4, 6, 2), Error);
  EXPECT_THROW(make_pipeline(PipelineSchedule::kZeroBubbleV, 4, 6), Error);
  EXPECT_THROW(schedule_of_name("2f2b"), Error);
  EXPECT_EQ(schedule_of_name("zbv"), PipelineSchedule::kZeroBubbleV);
}

}  // namespace
}  // namespace intarsia::plan
