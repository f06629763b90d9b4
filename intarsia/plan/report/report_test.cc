#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/report/pictures.h"

namespace intarsia::plan {
namespace {

ReportRequest request() {
  config::TrainConfig config;
  config.run.ranks = 4;
  config.zero.stage = 2;
  config.precision = config::Precision::kBf16;
  config.batch.micro_batch_size = 2;
  ReportRequest out;
  out.model = "llama-tiny";
  out.config = preset("llama-tiny").value();
  out.run = make_run_plan(config, out.config, 64, 1);
  out.local_ranks = 4;
  out.limit = {std::int64_t{1} << 30, "the machine"};
  return out;
}

ReportRequest with_search() {
  ReportRequest out = request();
  out.cluster = find_cluster("h100");
  out.space = SearchSpace{.devices = 16, .global_batch = 64, .pipeline = 2};
  return out;
}

TEST(Report, HasAllStagesAndMarksItsOwn) {
  const PlanReport report = make_report(request());
  ASSERT_EQ(report.stages.size(), 4U);
  EXPECT_EQ(report.own().stage, 2);
  EXPECT_EQ(report.stages[0].saving, 0);
  for (int stage = 1; stage <= 3; ++stage) EXPECT_GT(report.stages[static_cast<std::size_t>(stage)].saving, 0) << stage;
  EXPECT_NE(report_text(report).find("*stage 2"), std::string::npos);
}

TEST(Report, SaysWhenNothingIsLeftFree) {
  ReportRequest asked = request();
  asked.limit.bytes = host_need(replay_step(asked.run, asked.config), 4).host + 1;
  asked.margin = 0;
  EXPECT_TRUE(make_report(asked).own().fits);
  asked.margin = 0.05;
  EXPECT_FALSE(make_report(asked).own().fits);
}

TEST(Report, JsonHoldsWhatTheTextSays) {
  const PlanReport report = make_report(with_search());
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["stages"].size(), 4U);
  EXPECT_EQ(json["stages"][2]["peak"]["total_bytes"], report.own().replay.peak.total);
  EXPECT_GT(json["stages"][2]["timeline"].size(), 5U);
  ASSERT_FALSE(json["search"]["best"].empty());
  EXPECT_EQ(json["search"]["best"][0]["not_runnable_here"].is_null(), false);  // a pipeline
}

TEST(Report, CsvHasALineForEachStageAndPart) {
  const std::string csv = report_csv(make_report(request()));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 4 * (static_cast<int>(kNumHoldings) + 1));
}

TEST(Report, PageNeedsNothingFromElsewhere) {
  const std::string page = report_html(make_report(with_search()));
  for (const char* part : {"Memory of a rank by stage", "over one step", "Time against memory", "Pipeline of the best"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  std::string without_namespace = page;
  for (std::size_t at; (at = without_namespace.find("http://www.w3.org/2000/svg")) != std::string::npos;)
    without_namespace.erase(at, 26);
  EXPECT_EQ(without_namespace.find("http"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
}

TEST(Report, MarksWhereBlocksAreRecomputed) {
  const auto marked = [](const ReportRequest& asked) {
    const PlanReport report = make_report(asked);
    const auto json = nlohmann::json::parse(report_json(report));
    std::size_t moments = 0;
    for (const auto& moment : json["stages"][2]["timeline"]) moments += moment.contains("recomputed") ? 1 : 0;
    return std::pair{moments, report_html(report).find("recomputed: what lies between") != std::string::npos};
  };
  ReportRequest asked = request();
  EXPECT_EQ(marked(asked), (std::pair<std::size_t, bool>{0, false}));
  asked.run.recompute.policy = Recompute::kSelective;
  const auto blocks = static_cast<std::size_t>(asked.config.num_hidden_layers);
  EXPECT_EQ(marked(asked), (std::pair<std::size_t, bool>{blocks, true}));
}

TEST(Report, StagesKeepTheRunsShardGroups) {
  ReportRequest asked = request();
  asked.run.placement.replicas = 2;
  const PlanReport grouped = make_report(asked), whole = make_report(request());
  for (const int stage : {1, 2, 3}) {
    const auto index = static_cast<std::size_t>(stage);
    EXPECT_GT(grouped.stages[index].replay.states.total, whole.stages[index].replay.states.total) << stage;
  }
}

TEST(Report, CountsTheCopyOfABackgroundSave) {
  ReportRequest asked = request();
  const std::int64_t before = make_report(asked).own().replay.peak.total;
  asked.replay.background_save = true;
  const Moment after = make_report(asked).own().replay.peak;
  EXPECT_GT(after[Holding::kSnapshot], 0);
  EXPECT_EQ(after.total, before + after[Holding::kSnapshot]);
}

TEST(Report, SaysWhatFailuresLeave) {
  const PlanReport report = make_report(with_search());
  ASSERT_TRUE(report.failures.has_value());
  EXPECT_NE(report_text(report).find("of the time that counts"), std::string::npos);
  EXPECT_GT(nlohmann::json::parse(report_json(report))["failures"]["goodput"], 0.9);
}

TEST(Charts, EscapeWhatTheyAreGiven) { EXPECT_EQ(xml_escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;"); }

TEST(Charts, TenBillionOnEightDevicesIsTheGoldenPicture) {
  const std::string svg = zero_stages_svg(10e9, 8, 80e9);
  for (const char* text : {">160<", ">55 (-65.6 %)<", ">37.5 (-76.6 %)<", ">20 (-87.5 %)<", ">device, 80 GB<"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  std::ifstream golden("tests/fixtures/plan/zero_10b_8.svg");
  std::ostringstream expected;
  expected << golden.rdbuf();
  EXPECT_EQ(svg, expected.str()) << "after a change of the charts: look at the picture, then renew the fixture";
}

TEST(Clusters, ReadWhatTheyWrite) {
  const std::string file = ::testing::TempDir() + "cluster_read_write.json";
  for (const ClusterSpec& cluster : cluster_presets()) {
    std::ofstream(file) << cluster_json(cluster);
    EXPECT_EQ(cluster_json(find_cluster(file)), cluster_json(cluster));
  }
  std::ofstream(file) << R"({"device_memory_byte": 5})";
  try {
    find_cluster(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean device_memory_bytes"), std::string::npos) << error.what();
  }
  EXPECT_THROW(find_cluster("h1000"), Error);
}

}  // namespace
}  // namespace intarsia::plan
