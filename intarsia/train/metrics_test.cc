#include "intarsia/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/train/evaluation_history.h"

namespace intarsia::train {
namespace {

TEST(Metrics, LineIsJsonWithShortestNumbersAndNullForNan) {
  const auto line = nlohmann::json::parse(metrics_line({.step = 3, .loss = 0.1, .grad_norm = std::nan("")}));
  EXPECT_EQ(line["step"], 3);
  EXPECT_EQ(line["loss"], 0.1);
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_FALSE(line.contains("eval_loss"));
}

TEST(Metrics, CutKeepsStepsUpToTheCheckpointAndDropsTornLines) {
  const std::string path = testing::TempDir() + "/metrics.jsonl";
  std::ofstream(path) << metrics_line({.step = 1, .loss = 2}) << "\n"
                      << metrics_line({.step = 2, .loss = 1, .eval_loss = 3}) << "\n"
                      << metrics_line({.step = 3}) << "\n{\"step\": 4, \"lo";
  cut_metrics(path, 2);
  const auto points = read_losses(path);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[1].loss, 1);
  EXPECT_EQ(points[1].eval_loss, 3);
}

TEST(EvaluationHistory, CountsEvaluationsSinceTheBest) {
  EvaluationHistory history;
  EXPECT_TRUE(history.add(3));
  EXPECT_FALSE(history.add(3));
  EXPECT_FALSE(history.add(std::nan("")));
  EXPECT_EQ(history.since_best(), 2);
  EXPECT_TRUE(history.add(2.5));
  EXPECT_EQ(history.since_best(), 0);
  EXPECT_EQ(history.best(), 2.5);
}

}  // namespace
}  // namespace intarsia::train
