#include "intarsia/train/run_report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/train/metrics.h"

namespace intarsia::train {
namespace {

RunHistory history_of(int steps) {
  RunHistory history;
  for (int step = 1; step <= steps; ++step) {
    Metrics metrics{.step = step, .loss = 5.0 - 0.1 * step, .lr = 1e-4, .step_seconds = 2, .peak_bytes = 3 << 20};
    metrics.skipped = step == 2;
    if (step % 5 == 0) metrics.eval_loss = 1.5;
    history.add_metrics(metrics_line(metrics));
  }
  return history;
}

TEST(RunHistory, AddsUpWhatTheLinesSay) {
  const RunHistory history = history_of(10);
  EXPECT_EQ(history.last_step, 10);
  EXPECT_EQ(history.skipped, 1);
  EXPECT_EQ(history.seconds, 20);
  EXPECT_EQ(history.evaluations.size(), 2U);
  EXPECT_FALSE(history.scale_moved);
}

TEST(RunHistory, LinesThatAreNotOursChangeNothing) {
  RunHistory history = history_of(2);
  for (const char* line :
       {"", "{\"step\": 4, \"lo", "[]", "null", "{\"step\": \"3\"}", "{\"step\": 1e300, \"loss\": 1}", "{\"step\": -1}",
        "{\"step\": 3, \"loss\": \"<b>\", \"skipped\": 7, \"lr\": null}"})
    history.add_metrics(line);
  EXPECT_EQ(history.loss.points().size(), 2U);
  EXPECT_EQ(history.skipped, 1);
}

TEST(RunHistory, IsReadFromTheRunsFolderAndKeepsTheLastSamples) {
  const std::string run = testing::TempDir() + "history";
  std::filesystem::create_directories(run);
  std::ofstream metrics(run + "/metrics.jsonl"), samples(run + "/samples.jsonl");
  for (int step = 1; step <= 100; ++step) {
    metrics << metrics_line({.step = step, .loss = 1}) << "\n";
    samples << sample_line({step, "p\xff", "a\n\"b\""}) << "\n";
  }
  metrics.close();
  samples.close();
  const RunHistory history = RunHistory::read(run);
  EXPECT_EQ(history.steps, 100);
  ASSERT_EQ(history.samples.size(), RunHistory::kKeptSamples);
  EXPECT_EQ(history.samples.back().step, 100);
  EXPECT_EQ(history.samples.back().text, "a\n\"b\"");
  EXPECT_EQ(RunHistory::read(run + "/none").steps, 0);
}

TEST(RunReport, EscapesEveryTextAndNeedsNothingFromElsewhere) {
  RunHistory history = history_of(10);
  const std::string bad = "</pre><script src=\"http://x\">alert(1)</script>&";
  history.add_sample(sample_line({3, bad, bad}));
  const std::string page =
      run_report_html(history, {.title = bad, .status = bad, .banner = bad, .config_json = bad, .predicted_peak = 1});
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("src=\""), std::string::npos);
  EXPECT_NE(page.find("&lt;script"), std::string::npos);
  for (const char* part : {"Loss<", "Learning rate", "Norm of the gradient", "Throughput", "Time of a step",
                           "predicted", "Evaluations", "Samples", "Configuration"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(RunReport, DoesNotGrowWithTheRun) {
  RunFacts facts;
  facts.title = "m";
  EXPECT_LT(run_report_html(history_of(5000), facts).size(), 400'000U);
  EXPECT_GT(run_report_html(RunHistory{}, facts).size(), 1000U);  // before the first step
}

TEST(LossPlot, DrawsBothCurvesAndEscapesTheTitle) {
  const std::string svg = loss_plot(history_of(5), "a<b");
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_NE(svg.find("evaluation"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::train
