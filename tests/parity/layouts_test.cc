// Layouts against each other: stages, recomputation, mapped and copied parameters, precision, uneven numbers of ranks.
#include "fixture_case.h"

namespace intarsia::parity {
namespace {

void expect_close(const Curve& a, const Curve& b, double tolerance) {
  for (std::size_t step = 0; step < a.steps.size(); ++step) {
    EXPECT_NEAR(a.steps[step].loss, b.steps[step].loss, tolerance * a.steps[step].loss) << "step " << step;
    EXPECT_NEAR(a.steps[step].grad_norm, b.steps[step].grad_norm, tolerance * a.steps[step].grad_norm)
        << "step " << step;
  }
}

void expect_equal(const Curve& a, const Curve& b) {
  expect_close(a, b, 0);
  for (std::size_t i = 0; i < a.weights.size(); ++i) EXPECT_TRUE(at::equal(a.weights[i], b.weights[i])) << i;
}

TEST(Layouts, StagesAgreeAtTheSameNumberOfRanks) {
  const Curve base = run_layout({"llama-tied", "clip", 4, 0});
  for (const int stage : {1, 2, 3}) expect_close(base, run_layout({"llama-tied", "clip", 4, stage}), 1e-6);
}

TEST(Layouts, StagesAgreeWithAccumulation) {
  const Curve base = run_layout({"llama-gqa", "accumulate", 2, 0});
  for (const int stage : {1, 2, 3}) expect_close(base, run_layout({"llama-gqa", "accumulate", 2, stage}), 5e-6);
}

TEST(Layouts, RecomputedBlocksGiveTheSameBits) {
  expect_equal(run_layout({"llama-tied", "all", 2, 3}),
               run_layout({.model = "llama-tied", .variant = "all", .ranks = 2, .stage = 3, .recompute = true}));
}

TEST(Layouts, MappedAndCopiedParametersGiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    expect_equal(run_layout({.model = "llama-gqa", .ranks = 4, .stage = 3, .dtype = dtype}),
                 run_layout({.model = "llama-gqa", .ranks = 4, .stage = 3, .force_copy = true, .dtype = dtype}));
}

TEST(Layouts, Bf16StaysNearFp32AndStagesAgree) {
  const Curve wide = run_layout({.model = "llama-gqa", .ranks = 2, .stage = 3});
  const Curve base = run_layout({.model = "llama-gqa", .ranks = 2, .stage = 0, .dtype = DType::kBF16});
  for (const int stage : {1, 2, 3})
    expect_close(base, run_layout({.model = "llama-gqa", .ranks = 2, .stage = stage, .dtype = DType::kBF16}), 1e-6);
  // At this rate (0.01) trajectories part; the losses stay together.
  for (std::size_t step = 0; step < 20; ++step)
    EXPECT_NEAR(wide.steps[step].loss, base.steps[step].loss, 0.02 * wide.steps[step].loss) << "step " << step;
}

// behaviours, kind 5: shapes that do not divide, and fewer blocks of elements than ranks.
TEST(Layouts, MoreRanksThanBlocksOfElementsStillTrain) {
  Layout layout{.model = "llama-bf16", .ranks = 12, .stage = 3, .steps = 3};
  const Curve many = run_layout(layout);
  layout.ranks = 1;
  expect_close(run_layout(layout), many, 2e-6);
}

}  // namespace
}  // namespace intarsia::parity
