#include "intarsia/plan/recompute_plan.h"

#include <gtest/gtest.h>

namespace intarsia::plan {
namespace {

std::string chosen(const RecomputePlan& plan, std::int64_t blocks) {
  std::string out;
  for (std::int64_t block = 0; block < blocks; ++block) out += plan.recomputes(block) ? 'x' : '-';
  return out;
}

TEST(RecomputePlan, NamesTheBlocks) {
  EXPECT_EQ(chosen({}, 4), "----");
  EXPECT_EQ(chosen({.policy = Recompute::kFull}, 4), "xxxx");
  EXPECT_EQ(chosen({.policy = Recompute::kSelective}, 4), "xxxx");
  EXPECT_EQ(chosen({.policy = Recompute::kEveryK, .every = 2}, 5), "-x-x-");
  EXPECT_EQ(chosen({.policy = Recompute::kEveryK, .every = 3}, 5), "--x--");
  EXPECT_EQ(chosen({.policy = Recompute::kEveryK, .every = 9}, 5), "-----");
}

TEST(RecomputePlan, ANumberOfCheckpointsCutsBlocksIntoPieces) {
  const auto span = [](std::int64_t checkpoints, std::int64_t blocks) {
    return RecomputePlan{.policy = Recompute::kFull, .checkpoints = checkpoints}.span(blocks);
  };
  EXPECT_EQ(span(0, 24), 1);
  EXPECT_EQ(span(24, 24), 1);
  EXPECT_EQ(span(100, 24), 1);
  EXPECT_EQ(span(12, 24), 2);
  EXPECT_EQ(span(5, 24), 5);
  EXPECT_EQ(span(1, 24), 24);
  EXPECT_EQ(span(3, 0), 1);
}

}  // namespace
}  // namespace intarsia::plan
