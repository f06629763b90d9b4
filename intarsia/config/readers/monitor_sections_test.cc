// The sections tensorboard and csv_monitor, and prompts to sample.
#include <gtest/gtest.h>

#include "intarsia/base/text.h"
#include "intarsia/config/effective.h"
#include "intarsia/config/resolve.h"

namespace intarsia::config {
namespace {

Resolved with(const std::string& sections) {
  ResolveInput input;
  input.file = "given";
  input.text = concat("{\"train_batch_size\": 4, ", sections, "}");
  input.ranks = 4;
  input.for_training = true;
  return resolve(input);
}

std::string first_problem(const std::string& sections) {
  try {
    (void)with(sections);
  } catch (const ConfigError& error) {
    return error.problems().at(0).text();
  }
  return "accepted: " + sections;
}

TEST(MonitorKeys, AreHonouredAndStandInTheResolvedConfiguration) {
  const Resolved resolved =
      with(R"("tensorboard": {"enabled": true, "output_path": "out/tb", "job_name": "mine"}, "csv_monitor": {})");
  const TrainConfig& config = resolved.config;
  EXPECT_TRUE(config.tensorboard.enabled);
  EXPECT_EQ(config.tensorboard.output_path, "out/tb");
  EXPECT_EQ(config.tensorboard.job_name, "mine");
  EXPECT_TRUE(config.csv_monitor.section_present);
  EXPECT_FALSE(config.csv_monitor.enabled);
  EXPECT_EQ(config.csv_monitor.job_name, "DeepSpeedJobName");
  for (const Report& report : resolved.reports) EXPECT_EQ(report.message.find("no effect"), std::string::npos);
  const auto json = resolved_config_json(resolved);
  EXPECT_EQ(json["tensorboard"]["job_name"], "mine");
  EXPECT_FALSE(resolved_config_json(with(R"("steps_per_print": 1)")).contains("tensorboard"));
}

TEST(MonitorKeys, AJobIsTheNameOfOneFolder) {
  for (const char* name : {"../up", "/root", "a/b", "..", ""})
    EXPECT_NE(first_problem(concat(R"("csv_monitor": {"job_name": ")", name, "\"}")).find("one folder"),
              std::string::npos)
        << name;
  EXPECT_NE(first_problem(R"("tensorboard": {"outputpath": "x"})").find("output_path"), std::string::npos);
}

TEST(MonitorKeys, WandbAndCometHaveNoEffectByName) {
  for (const char* section : {"wandb", "comet"}) {
    bool said = false;
    for (const Report& report : with(concat("\"", section, R"(": {"enabled": true})")).reports)
      said = said || (report.path == concat(section, ".enabled") && report.message.starts_with("no effect here"));
    EXPECT_TRUE(said) << section;
  }
}

TEST(SampleSettings, NeedPrompts) {
  const RunConfig run =
      with(R"("intarsia": {"sample_prompts": ["a", "b"], "sample_every": 3, "sample_chat": true})").config.run;
  EXPECT_EQ(run.sample_prompts.size(), 2U);
  EXPECT_EQ(run.sample_every, 3);
  EXPECT_TRUE(run.sample_chat);
  EXPECT_NE(first_problem(R"("intarsia": {"sample_every": 3})").find("--sample-prompts"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::config
