// Reproducible mode: every layout gives the bits of the run in one process. The grid is generated; the fast suite runs
// a part in which each pair of values of two axes occurs, the slow suite all of it.
#include <map>
#include <set>

#include "grid_case.h"

namespace intarsia::parity {
namespace {

constexpr std::int64_t kSteps = 4;

std::vector<GridCase> all_cases() {
  std::vector<GridCase> cases;
  for (int placement = 0; placement < static_cast<int>(grid_placements().size()); ++placement)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const std::int64_t logical : {8, 32})  // one and four micro-steps on 8 ranks
        for (const plan::Recompute recompute :
             {plan::Recompute::kNone, plan::Recompute::kFull, plan::Recompute::kSelective})
          for (const int ranks : {1, 2, 4, 8})
            for (const bool copied : {false, true}) {
              const GridCase cell{placement, dtype, logical, recompute, ranks, copied};
              if (cell.exists()) cases.push_back(cell);
            }
  return cases;
}

using Pairs = std::set<std::array<std::int64_t, 4>>;

Pairs pairs_of(const GridCase& cell) {
  const std::array<std::int64_t, 6> values = {cell.placement, static_cast<std::int64_t>(cell.dtype),
                                              cell.logical,   static_cast<std::int64_t>(cell.recompute),
                                              cell.ranks,     cell.copied ? 1 : 0};
  Pairs pairs;
  for (std::int64_t a = 0; a < 6; ++a)
    for (std::int64_t b = a + 1; b < 6; ++b)
      pairs.insert({a, values[static_cast<std::size_t>(a)], b, values[static_cast<std::size_t>(b)]});
  return pairs;
}

// Greedy: always the cell with the most pairs that are still missing.
std::vector<GridCase> covering_cases() {
  const std::vector<GridCase> all = all_cases();
  Pairs missing;
  for (const GridCase& cell : all) missing.merge(pairs_of(cell));
  std::vector<GridCase> chosen;
  while (!missing.empty()) {
    const auto gain = [&](const GridCase& cell) {
      return std::ranges::count_if(pairs_of(cell), [&](const auto& pair) { return missing.contains(pair); });
    };
    const GridCase best = *std::ranges::max_element(all, {}, gain);
    for (const auto& pair : pairs_of(best)) missing.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

// The oracle: one process, nothing sharded, nothing recomputed, nothing copied.
const GridRun& oracle(DType dtype, std::int64_t logical) {
  static std::map<std::pair<DType, std::int64_t>, GridRun> runs;
  const auto key = std::pair(dtype, logical);
  if (!runs.contains(key)) runs[key] = run({.dtype = dtype, .logical = logical}, kSteps);
  return runs[key];
}

class Grid : public testing::TestWithParam<GridCase> {};

TEST_P(Grid, HasTheBitsOfOneProcess) {
  const GridRun& expected = oracle(GetParam().dtype, GetParam().logical);
  const GridRun actual = run(GetParam(), kSteps);
  for (std::size_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    EXPECT_EQ(actual.steps[step].loss, expected.steps[step].loss);
    EXPECT_TRUE(same_number(actual.steps[step].grad_norm, expected.steps[step].grad_norm))
        << actual.steps[step].grad_norm << " is not " << expected.steps[step].grad_norm;
    EXPECT_EQ(actual.steps[step].loss_scale, expected.steps[step].loss_scale);
    EXPECT_EQ(actual.steps[step].skipped, expected.steps[step].skipped);
  }
  for (std::size_t flat = 0; flat < expected.gradients.size(); ++flat) {
    // Beyond the shorter one there is only padding.
    const std::int64_t numel = std::min(actual.gradients[flat].numel(), expected.gradients[flat].numel());
    EXPECT_TRUE(at::equal(actual.gradients[flat].narrow(0, 0, numel), expected.gradients[flat].narrow(0, 0, numel)))
        << "gradient of flat buffer " << flat;
  }
  for (std::size_t param = 0; param < expected.weights.size(); ++param)
    EXPECT_TRUE(at::equal(actual.weights[param], expected.weights[param])) << "parameter " << param;
}

TEST(Grid, TheOracleTrains) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const GridRun& reference = oracle(dtype, 8);
    EXPECT_FALSE(reference.steps.back().skipped) << short_name(dtype);
    EXPECT_GT(reference.gradients[0].abs().max().item<float>(), 0);
  }
  EXPECT_TRUE(oracle(DType::kF16, 8).steps.front().skipped) << "the initial scale must overflow";
}

INSTANTIATE_TEST_SUITE_P(Covering, Grid, testing::ValuesIn(covering_cases()));
INSTANTIATE_TEST_SUITE_P(SlowAll, Grid, testing::ValuesIn(all_cases()));

}  // namespace
}  // namespace intarsia::parity
