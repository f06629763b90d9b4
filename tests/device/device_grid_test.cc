// The parity grid's covering part on the test device: the bits of the CPU's run in one process.
#include <map>

#include "on_test_device.h"
#include "tests/parity/grid_cases.h"

namespace intarsia::parity {
namespace {

constexpr std::int64_t kSteps = 3;

const GridRun& cpu_run(DType dtype, std::int64_t logical) {
  static std::map<std::pair<DType, std::int64_t>, GridRun> runs;
  const auto key = std::pair(dtype, logical);
  if (!runs.contains(key)) runs[key] = run({.dtype = dtype, .logical = logical}, kSteps);
  return runs[key];
}

class DeviceGrid : public testing::TestWithParam<GridCase> {};

TEST_P(DeviceGrid, HasTheBitsOfTheCpu) {
  const GridRun& expected = cpu_run(GetParam().dtype, GetParam().logical);
  const GridRun actual = run(GetParam(), kSteps, DeviceKind::kTest);
  for (std::size_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    EXPECT_EQ(actual.steps[step].loss, expected.steps[step].loss);
    EXPECT_TRUE(same_number(actual.steps[step].grad_norm, expected.steps[step].grad_norm))
        << actual.steps[step].grad_norm << " is not " << expected.steps[step].grad_norm;
    EXPECT_EQ(actual.steps[step].skipped, expected.steps[step].skipped);
  }
  for (std::size_t flat = 0; flat < expected.gradients.size(); ++flat) {
    const std::int64_t numel = std::min(actual.gradients[flat].numel(), expected.gradients[flat].numel());
    EXPECT_TRUE(at::equal(actual.gradients[flat].narrow(0, 0, numel), expected.gradients[flat].narrow(0, 0, numel)))
        << "gradient of flat buffer " << flat;
  }
  for (std::size_t param = 0; param < expected.weights.size(); ++param)
    EXPECT_TRUE(at::equal(actual.weights[param], expected.weights[param])) << "parameter " << param;
}

INSTANTIATE_TEST_SUITE_P(Covering, DeviceGrid, testing::ValuesIn(covering_cases()));

}  // namespace
}  // namespace intarsia::parity
