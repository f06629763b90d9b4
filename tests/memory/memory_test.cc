#include <gtest/gtest.h>

#include <functional>

#include "states.h"

namespace intarsia::memory {
namespace {

// About 6.6 million parameters: large enough that rounding to blocks stays below 3 %. The 34M table is bench/memory.
formats::HfConfig medium_model() {
  formats::HfConfig model = plan::preset("llama-34m").value();
  model.hidden_size = 256;
  model.intermediate_size = 704;
  model.num_attention_heads = model.num_key_value_heads = 4;
  model.head_dim = 64;
  model.num_hidden_layers = 6;
  model.vocab_size = 4096;
  return model;
}

void expect_formula(DType dtype, int stage, bool copy) {
  const States states = measure(medium_model(), dtype, stage, 4, copy);
  EXPECT_NEAR(static_cast<double>(states.measured), states.formula, 0.03 * states.formula)
      << short_name(dtype) << " stage " << stage;
  EXPECT_LE(states.buffers, states.two_units) << short_name(dtype) << " stage " << stage;
}

TEST(Memory, StatesFollowTheFormulasOfEveryStageInFp32) {
  for (const int stage : {0, 1, 2, 3}) expect_formula(DType::kF32, stage, false);
}

TEST(Memory, StatesFollowTheFormulasOfEveryStageInBf16) {
  for (const int stage : {0, 1, 2, 3}) expect_formula(DType::kBF16, stage, false);
}

TEST(Memory, CopyingStageThreeNeedsNoMoreThanTwoUnitsBuffers) { expect_formula(DType::kF32, 3, true); }

// What is allocated is what was planned, in every row of the table.
void expect_planned(const char* what, const std::function<void(config::TrainConfig&)>& ask) {
  config::TrainConfig config;
  config.run.ranks = 4;
  config.zero.stage = 3;
  ask(config);
  const States states = measure(medium_model(), config);
  EXPECT_EQ(states.measured, states.planned) << what;
}

TEST(Memory, ShardGroupsHoldWhatThePlanSays) {
  expect_planned("hybrid", [](auto& config) { config.run.shard_size = 2; });
  expect_planned("hybrid zero2", [](auto& config) {
    config.run.shard_size = 2;
    config.zero.stage = 2;
  });
  for (const bool copied : {false, true})
    expect_planned("hpZ", [&](auto& config) {
      config.zero.hpz_partition_size = 2;
      config.run.force_copy = copied;
    });
  expect_planned("hpZ in bf16", [](auto& config) {
    config.zero.hpz_partition_size = 2;
    config.precision = config::Precision::kBf16;
  });
}

TEST(Memory, TheTreeOfReproducibleModeHoldsWhatThePlanSays) {
  for (const int stage : {0, 2, 3})
    expect_planned("reproducible", [&](auto& config) {
      config.zero.stage = stage;
      config.run.reproducible = true;
      config.batch = {16, 1, 4};
    });
}

}  // namespace
}  // namespace intarsia::memory
