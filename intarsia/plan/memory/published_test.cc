// Rows of tests/fixtures/plan/validation_rows.csv that are memory or volume; a test's comment names the row.
#include "intarsia/plan/memory/published.h"

#include <gtest/gtest.h>

namespace intarsia::plan {
namespace {

constexpr double kGB = 1e9, kGiB = 1024.0 * 1024 * 1024, kTiB = 1024 * kGiB;

void expect_within(double value, double published, double percent) {
  EXPECT_NEAR(value / published, 1, percent / 100) << value << " against " << published;
}

TEST(Published, Zero7BOn64Devices) {  // zero-7.5b-dp64
  const double expected[] = {120, 31.4, 16.6, 1.875};
  for (int stage = 0; stage <= 3; ++stage)
    expect_within(zero_state_bytes(7.5e9, stage, 64) / kGB, expected[stage], 0.5);
}

TEST(Published, Zero128BOn16Devices) {  // zero-128b-dp16
  const double expected[] = {608, 368, 128};
  for (int stage = 1; stage <= 3; ++stage)
    expect_within(zero_state_bytes(128e9, stage, 16) / kGB, expected[stage - 1], 0.5);
}

TEST(Published, ZeroATrillionOn1024Devices) {  // zero-1t-dp1024
  expect_within(zero_state_bytes(1e12, 3, 1024) / kGB, 15.6, 0.5);
}

TEST(Published, ZeroLargestModelOn64Devices) {  // zero-max-model-mp1
  const double expected[] = {2, 7.6, 14.4, 128};
  for (int stage = 0; stage <= 3; ++stage) expect_within(zero_largest_model(32e9, stage, 64) / 1e9, expected[stage], 1);
}

TEST(Published, TenBillionOnOneAndOnEightDevices) {
  const double parts = 10e9 * 2;
  EXPECT_DOUBLE_EQ(parts, 20 * kGB);                            // parameters; gradients alike
  EXPECT_DOUBLE_EQ(10e9 * kZeroPaper.optimizer / 3, 40 * kGB);  // masters, first and second moments
  const double expected[] = {160, 55, 37.5, 20};
  for (int stage = 0; stage <= 3; ++stage) EXPECT_DOUBLE_EQ(zero_state_bytes(10e9, stage, 8), expected[stage] * kGB);
}

TEST(Published, OurFp32GradientsAre18BytesAParameter) {
  EXPECT_DOUBLE_EQ(zero_state_bytes(1, 0, 4, kFp32Gradients), 18);
  EXPECT_DOUBLE_EQ(zero_state_bytes(1, 1, 4, kFp32Gradients), 9);
  EXPECT_DOUBLE_EQ(zero_state_bytes(1, 2, 4, kFp32Gradients), 6);
  EXPECT_DOUBLE_EQ(zero_state_bytes(1, 3, 4, kFp32Gradients), 4.5);
  EXPECT_DOUBLE_EQ(zero_state_bytes(1, 2, 4, kPureFp32), 7);
}

TEST(Published, InfinityATrillion) {  // zero-infinity-1t-memory
  const PaperModel model{.layers = 128, .hidden = 25.0 * 1024, .heads = 256, .sequence = 1024};
  expect_within(infinity_state_bytes(model) / kTiB, 18.31, 1);
  expect_within(infinity_kept_inputs_bytes(model, 32, 1) / kTiB, 0.20, 3);  // printed with two digits
  expect_within(infinity_model_working_bytes(model) / kGiB, 9.77, 1);
  expect_within(infinity_activation_working_bytes(model, 2, 1) / kGiB, 3.56, 1);
}

TEST(Published, InfinityEfficiency) {  // zero-infinity-efficiency
  EXPECT_NEAR(100 * infinity_efficiency(1024 * 1, 70e9, 70e12), 50.6, 0.5);
}

TEST(Published, Korthikanti22B) {  // korthikanti-22b-memory
  const PaperModel model{.layers = 48, .hidden = 6144, .heads = 64, .sequence = 2048};
  PaperLayout layout{.micro_batch = 4, .tensor = 8};
  expect_within(megatron_state_bytes(model, 8) / kGiB, 45.5625, 0.5);
  expect_within(korthikanti_activation_bytes(model, layout) / kGiB, 59.25, 0.5);
  layout.sequence_parallel = true;
  layout.recompute = PaperRecompute::kSelective;
  expect_within(korthikanti_activation_bytes(model, layout) / kGiB, 9.5625, 0.5);
}

TEST(Published, Korthikanti175B) {  // korthikanti-175b-memory
  const PaperModel model{.layers = 96, .hidden = 12288, .heads = 96, .sequence = 2048};
  PaperLayout layout{.micro_batch = 1, .tensor = 8, .pipeline = 8, .chunks = 3};
  expect_within(korthikanti_activation_bytes(model, layout) / kGiB, 66.84, 0.5);
  layout.sequence_parallel = true;
  layout.recompute = PaperRecompute::kSelective;
  expect_within(korthikanti_activation_bytes(model, layout) / kGiB, 12.35, 0.5);
}

TEST(Published, DeepSpeedEstimatorZero2) {  // ds-estimator-zero2
  const EstimatorLayout host{.devices_per_host = 8, .hosts = 1};
  expect_within(deepspeed_zero2_estimate(2851e6, host, EstimatorOffload::kNone, true).device / kGiB, 15.93, 0.5);
  const EstimatorBytes offloaded = deepspeed_zero2_estimate(2851e6, host, EstimatorOffload::kOptimizer);
  expect_within(offloaded.device / kGiB, 5.31, 0.5);
  expect_within(offloaded.host / kGiB, 127.45, 0.5);
}

TEST(Published, ZeroPlusPlusVolume) {  // zeropp-volume
  EXPECT_DOUBLE_EQ(zero3_volume({}), 3);
  EXPECT_DOUBLE_EQ(zero3_volume({.quantized_weights = true, .hierarchical_weights = true, .quantized_gradients = true}),
                   0.75);
}

}  // namespace
}  // namespace intarsia::plan
