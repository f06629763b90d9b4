// What a step says to other ranks, operation by operation, against files that a person has read: step_logs/*.txt.
// After a change that means to change them: INTARSIA_WRITE_STEP_LOGS=1 writes them anew; read the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "measure.h"

namespace intarsia::plan_measured {
namespace {

// Two blocks, two micro-steps, two ranks.
Case two_blocks(int stage) {
  Case c{.model = plan::preset("llama-34m").value(), .stage = stage, .ranks = 2, .length = 8, .accumulation = 2};
  c.model.hidden_size = 64;
  c.model.intermediate_size = 96;
  c.model.num_attention_heads = c.model.num_key_value_heads = 2;
  c.model.head_dim = 32;
  c.model.num_hidden_layers = 2;
  c.model.vocab_size = 128;
  return c;
}

void expect_log(const Case& c, const std::string& name) {
  const std::string path = "tests/plan/step_logs/" + name + ".txt";
  const std::string log = measure(c).log;
  if (std::getenv("INTARSIA_WRITE_STEP_LOGS") != nullptr) std::ofstream(path) << log;
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::ostringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(log, expected.str()) << path;
}

TEST(StepLog, OfEveryStage) {
  for (const int stage : {0, 1, 2, 3}) expect_log(two_blocks(stage), "stage" + std::to_string(stage));
}

TEST(StepLog, OfStageThreeThatCopies) {
  Case c = two_blocks(3);
  c.copy = true;
  expect_log(c, "stage3_copied");
}

TEST(StepLog, OfStageThreeThatGathersAhead) {
  Case c = two_blocks(3);
  c.copy = c.overlap = true;
  expect_log(c, "stage3_ahead");
  c.recompute = config::Recompute::kFull;
  expect_log(c, "stage3_ahead_recomputed");
}

TEST(StepLog, OfStageThreeWithoutSync) {
  Case c = two_blocks(3);
  c.no_sync = true;
  expect_log(c, "stage3_no_sync");
}

}  // namespace
}  // namespace intarsia::plan_measured
