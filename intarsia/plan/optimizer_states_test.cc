#include "intarsia/plan/optimizer_states.h"

#include <gtest/gtest.h>

#include <map>

namespace intarsia::plan {
namespace {

// An embedding, a matrix, a vector, one without elements, a frozen one.
RunPlan plan_of(OptimizerKind kind, int ranks, int stage) {
  RunPlan plan;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) -> ParamSpec& {
    ParamSpec& param = plan.model.params.emplace_back();
    param.name = name;
    param.shape = std::move(shape);
    return param;
  };
  add("embed.weight", {50, 30});
  add("block.up", {70, 40});
  add("block.down", {40, 60});
  add("block.norm", {40});
  add("block.none", {0, 8});
  add("block.frozen", {30, 30}).frozen = true;
  plan.model.units = {{"embed", {0}}, {"block", {1, 2, 3, 4, 5}}};
  plan.ranks = ranks;
  plan.placement = placement_of_stage(stage);
  plan.flats = layout_units(plan.model, ranks);
  plan.optimizer.kind = kind;
  return plan;
}

std::int64_t held(const RunPlan& plan, TensorKind kind, int shard) {
  std::int64_t numel = 0;
  for (const FlatLayout& layout : plan.flats)
    if (layout.trainable)
      for (const StateBuffer& buffer : state_buffers(plan, layout, matrix_owners(plan), shard))
        for (const StateSlot& slot : buffer.slots)
          if (buffer.kind == kind) numel += slot.elements.size();
  return numel;
}

TEST(OptimizerStates, EveryElementOfEveryStateIsHeldByExactlyOneRank) {
  const std::int64_t all = 50 * 30 + 70 * 40 + 40 * 60 + 40;
  const std::map<OptimizerKind, std::map<TensorKind, std::int64_t>> expected = {
      {OptimizerKind::kAdam, {{TensorKind::kExpAvg, all}, {TensorKind::kExpAvgSq, all}}},
      {OptimizerKind::kSgd, {}},
      {OptimizerKind::kLion, {{TensorKind::kExpAvg, all}}},
      {OptimizerKind::kAdagrad, {{TensorKind::kSum, all}}},
      {OptimizerKind::kMuon,
       {{TensorKind::kMomentum, all - 1540}, {TensorKind::kExpAvg, 1540}, {TensorKind::kExpAvgSq, 1540}}},
      {OptimizerKind::kAdafactor,
       {{TensorKind::kRowVar, 50 + 70 + 40}, {TensorKind::kColVar, 30 + 40 + 60}, {TensorKind::kVariance, 40}}}};
  for (const auto& [optimizer, kinds] : expected) {
    for (const int ranks : {1, 2, 3}) {
      const RunPlan plan = plan_of(optimizer, ranks, 3);
      for (const TensorKind kind : kTensorKinds) {
        std::int64_t numel = 0;
        for (int shard = 0; shard < ranks; ++shard) numel += held(plan, kind, shard);
        EXPECT_EQ(numel, kinds.contains(kind) ? kinds.at(kind) : 0)
            << static_cast<int>(optimizer) << " " << kind_name(kind) << " ranks " << ranks;
      }
    }
  }
}

TEST(OptimizerStates, MatricesAreSharedOutBySize) {
  const RunPlan plan = plan_of(OptimizerKind::kAdafactor, 2, 3);
  EXPECT_EQ(matrix_owners(plan), (std::vector<int>{1, 0, 1, -1, -1, -1}));
  EXPECT_EQ(matrix_owners(plan_of(OptimizerKind::kMuon, 2, 3)), (std::vector<int>{-1, 0, 1, -1, -1, -1}));
}

TEST(OptimizerStates, BytesFollowDtypeAndAverage) {
  RunPlan plan = plan_of(OptimizerKind::kAdam, 2, 2);
  const std::int64_t shard = plan.flats[0].shard_numel + plan.flats[1].shard_numel;
  EXPECT_EQ(optimizer_state_bytes(plan), 8 * shard);
  plan.optimizer.state_dtype = DType::kBF16;
  EXPECT_EQ(optimizer_state_bytes(plan), 4 * shard);
  plan.optimizer.ema_decay = 0.9;
  EXPECT_EQ(optimizer_state_bytes(plan), 8 * shard);
  plan.placement = placement_of_stage(0);
  EXPECT_EQ(optimizer_state_bytes(plan), 16 * shard);
}

}  // namespace
}  // namespace intarsia::plan
