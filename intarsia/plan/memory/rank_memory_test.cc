#include "intarsia/plan/memory/rank_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

formats::HfConfig small_model() {
  formats::HfConfig model = preset("llama-tiny").value();
  model.num_hidden_layers = 3;
  return model;
}

struct Asked {
  int stage = 0;
  int ranks = 1;
  config::Precision precision = config::Precision::kFp32;
  bool copy = false;
  bool recompute = false;
  std::int64_t batch = 2, length = 32, accumulation = 1;
};

RunPlan plan_of(const formats::HfConfig& model, const Asked& asked) {
  config::TrainConfig config;
  config.run.ranks = asked.ranks;
  config.run.force_copy = asked.copy;
  config.run.recompute = asked.recompute ? config::Recompute::kFull : config::Recompute::kNone;
  config.zero.stage = asked.stage;
  config.precision = asked.precision;
  config.batch.micro_batch_size = asked.batch;
  config.batch.accumulation = asked.accumulation;
  return make_run_plan(config, model, asked.length, 1);
}

StepReplay replay_of(const Asked& asked) {
  const formats::HfConfig model = small_model();
  return replay_step(plan_of(model, asked), model);
}

TEST(StepReplay, HoldsTheStatesThatThePlanCounts) {
  const formats::HfConfig model = small_model();
  for (const int ranks : {1, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const auto precision : {config::Precision::kFp32, config::Precision::kBf16}) {
        const RunPlan plan = plan_of(model, {.stage = stage, .ranks = ranks, .precision = precision});
        const Moment states = replay_step(plan, model).states;
        EXPECT_EQ(states.total - states[Holding::kReduce] - states[Holding::kTemporaries], state_bytes(plan))
            << "stage " << stage;
      }
}

TEST(StepReplay, EndsWithTheStatesOnly) {
  const StepReplay replay = replay_of({.stage = 3, .ranks = 4, .copy = true});
  const Moment& last = replay.timeline.back();
  EXPECT_EQ(last.label, "update");
  EXPECT_EQ(last[Holding::kActivations], 0);
  EXPECT_EQ(last[Holding::kLogits], 0);
}

TEST(StepReplay, KeepsABlocksActivationsByItsOwnOperations) {
  // Saved by one block in fp32, elements a token: input and normed twice, q, k, v, mixed, log-sums, three of the
  // feed-forward, two scales.
  const formats::HfConfig model = small_model();
  const std::int64_t hidden = model.hidden_size, heads = model.num_attention_heads, ffn = model.intermediate_size;
  const std::int64_t saved = 4 * 2 * 32 * (4 * hidden + 4 * hidden + heads + 3 * ffn + 2);
  const StepReplay replay = replay_of({});
  std::vector<std::int64_t> at_begin;
  for (const Moment& moment : replay.timeline)
    if (moment.label.starts_with("forward model.layers.")) at_begin.push_back(moment[Holding::kActivations]);
  ASSERT_EQ(at_begin.size(), 3U);
  EXPECT_EQ(at_begin[2] - at_begin[1], saved);
}

TEST(StepReplay, RecomputedBlocksKeepTheirInputOnly) {
  const StepReplay replay = replay_of({.recompute = true});
  std::vector<std::int64_t> at_begin;
  for (const Moment& moment : replay.timeline)
    if (moment.label.starts_with("forward model.layers.")) at_begin.push_back(moment[Holding::kActivations]);
  ASSERT_EQ(at_begin.size(), 3U);
  EXPECT_EQ(at_begin[2] - at_begin[1], 4 * 2 * 32 * small_model().hidden_size);
  EXPECT_LT(replay.peak.total, replay_of({}).peak.total);
}

TEST(StepReplay, CountsOneMoreForwardWhenBlocksAreRecomputed) {
  const auto flops = [](const StepReplay& replay) {
    double sum = 0;
    for (const Work& work : replay.work)
      if (work.kind == Work::Kind::kMatmul) sum += work.flops;
    return sum;
  };
  const formats::HfConfig model = small_model();
  const double tokens = 64, numel = static_cast<double>(llama_spec(model).numel());
  const double embedding = static_cast<double>(model.vocab_size * model.hidden_size);
  const double norms = 7.0 * static_cast<double>(model.hidden_size);
  EXPECT_DOUBLE_EQ(flops(replay_of({})), 6 * tokens * (numel - embedding - norms));
  // The second run stops before the last product of each block.
  const double down = 3.0 * static_cast<double>(model.hidden_size * model.intermediate_size);
  EXPECT_DOUBLE_EQ(flops(replay_of({.recompute = true})),
                   6 * tokens * (numel - embedding - norms) + 2 * tokens * (numel - 2 * embedding - norms - down));
}

TEST(StepReplay, GivesEveryOperationToOneAction) {
  for (const bool recompute : {false, true}) {
    const StepReplay replay =
        replay_of({.stage = 3, .ranks = 2, .copy = true, .recompute = recompute, .accumulation = 2});
    std::size_t covered = 0;
    for (const Action& action : replay.actions) {
      if (action.work_end == 0) continue;
      EXPECT_EQ(action.work_begin, covered);
      covered = action.work_end;
    }
    EXPECT_EQ(covered, replay.work.size());
  }
}

TEST(StepReplay, ReducesOnceAMicroStepInStageTwoAndOnceAWindowInStageOne) {
  const auto reductions = [](const StepReplay& replay) {
    return std::ranges::count_if(replay.actions,
                                 [](const Action& action) { return action.kind == ActionKind::kReduceScatter; });
  };
  EXPECT_EQ(reductions(replay_of({.stage = 2, .ranks = 2, .accumulation = 2})), 2 * 5);
  EXPECT_EQ(reductions(replay_of({.stage = 1, .ranks = 2, .accumulation = 2})), 5);
}

TEST(StepReplay, GathersUnitsTwiceInCopiedStageThreeOnly) {
  const auto gathers = [](const StepReplay& replay) {
    return std::ranges::count_if(replay.actions,
                                 [](const Action& action) { return action.kind == ActionKind::kAllGather; });
  };
  EXPECT_EQ(gathers(replay_of({.stage = 3, .ranks = 2})), 0);
  EXPECT_EQ(gathers(replay_of({.stage = 3, .ranks = 2, .copy = true})), 2 * 5);
}

}  // namespace
}  // namespace intarsia::plan
