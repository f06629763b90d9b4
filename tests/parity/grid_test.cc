// Every layout against the run in one process: the same bits in reproducible mode, stated tolerances otherwise. The
// grid is generated; the fast suite runs a part in which each pair of values of two axes occurs, the slow suite all of
// it.
#include <map>
#include <tuple>

#include "grid_cases.h"

namespace intarsia::parity {
namespace {

constexpr std::int64_t kSteps = 4;

// The oracle: one process, nothing sharded, nothing recomputed, nothing copied.
const GridRun& oracle(const GridCase& cell) {
  static std::map<std::tuple<DType, std::int64_t, bool>, GridRun> runs;
  const auto key = std::tuple(cell.dtype, cell.logical, cell.reproducible);
  if (!runs.contains(key))
    runs[key] = run({.dtype = cell.dtype, .logical = cell.logical, .reproducible = cell.reproducible}, kSteps);
  return runs[key];
}

class Grid : public testing::TestWithParam<GridCase> {};

TEST_P(Grid, HasTheBitsOfOneProcess) {
  const GridRun& expected = oracle(GetParam());
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

// Sums in another order: fp32 differs in the last bits; in 16 bits a master's last bit now and then moves a compute
// copy by one step of its type.
TEST_P(Grid, IsNearOneProcessWhenNotReproducible) {
  GridCase cell = GetParam();
  cell.reproducible = false;
  const double tolerance = cell.dtype == DType::kF32 ? 1e-5 : cell.dtype == DType::kF16 ? 2e-3 : 1e-2;
  const GridRun& expected = oracle(cell);
  const GridRun actual = run(cell, kSteps);
  for (std::size_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    EXPECT_NEAR(actual.steps[step].loss, expected.steps[step].loss, tolerance * expected.steps[step].loss);
    EXPECT_EQ(actual.steps[step].loss_scale, expected.steps[step].loss_scale);
    EXPECT_EQ(actual.steps[step].skipped, expected.steps[step].skipped);
    if (expected.steps[step].skipped) continue;
    EXPECT_NEAR(actual.steps[step].grad_norm, expected.steps[step].grad_norm,
                2 * tolerance * expected.steps[step].grad_norm);
  }
  for (std::size_t flat = 0; flat < expected.gradients.size(); ++flat) {
    const std::int64_t numel = std::min(actual.gradients[flat].numel(), expected.gradients[flat].numel());
    const at::Tensor reference = expected.gradients[flat].narrow(0, 0, numel);
    const double distance = (actual.gradients[flat].narrow(0, 0, numel) - reference).norm().item<double>();
    EXPECT_LE(distance, 20 * tolerance * reference.norm().item<double>()) << "gradient of flat buffer " << flat;
  }
}

TEST(Grid, TheOracleTrains) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const GridRun& reference = oracle({.dtype = dtype});
    EXPECT_FALSE(reference.steps.back().skipped) << short_name(dtype);
    EXPECT_GT(reference.gradients[0].abs().max().item<float>(), 0);
  }
  EXPECT_TRUE(oracle({.dtype = DType::kF16}).steps.front().skipped) << "the initial scale must overflow";
}

INSTANTIATE_TEST_SUITE_P(Covering, Grid, testing::ValuesIn(covering_cases()));
INSTANTIATE_TEST_SUITE_P(SlowAll, Grid, testing::ValuesIn(all_cases()));

}  // namespace
}  // namespace intarsia::parity
