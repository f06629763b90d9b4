// Runs the DeepSpeed fixtures against what DeepSpeed's and Hugging Face's own code makes of them (expected.json).
// lr_at_update is compared in plan/lr_schedule_fixtures_test.cc, since schedules are plan's.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/config/effective.h"

namespace intarsia::config {
namespace {

using Json = nlohmann::ordered_json;
const std::string kRoot = "tests/fixtures/configs/";

Json expected() {
  static const Json kExpected = Json::parse(std::ifstream(kRoot + "expected.json"));
  return kExpected;
}

// Every key of `want` must be in `have` with the same value; numbers compare by value.
void expect_within(const Json& want, const Json& have, const std::string& at) {
  if (want.is_object()) {
    ASSERT_TRUE(have.is_object()) << at << ": " << have;
    for (const auto& [key, value] : want.items()) {
      if (key == "lr_at_update" || key == "beta1_at_update") continue;
      ASSERT_TRUE(have.contains(key)) << at << "." << key;
      expect_within(value, have[key], at + "." + key);
    }
  } else if (want.is_number()) {
    ASSERT_TRUE(have.is_number()) << at << ": " << have;
    EXPECT_LE(std::fabs(want.get<double>() - have.get<double>()), 1e-9 * std::fabs(want.get<double>()))
        << at << ": " << have << " want " << want;
  } else if (want.is_array()) {
    ASSERT_EQ(want.size(), have.size()) << at;
    for (std::size_t i = 0; i < want.size(); ++i) expect_within(want[i], have[i], at);
  } else {
    EXPECT_EQ(want, have) << at;
  }
}

class TrainerFile {
 public:
  explicit TrainerFile(const Json& record) {
    if (!record.contains("trainer")) return;
    path_ = testing::TempDir() + "trainer_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
    std::ofstream(path_) << record["trainer"].dump();
  }
  ~TrainerFile() {
    if (!path_.empty()) std::filesystem::remove(path_);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Resolved resolve_fixture(const std::string& name, const Json& record, const std::string& trainer) {
  ResolveInput input;
  input.file = kRoot + name;
  input.trainer_file = trainer;
  input.ranks = record.value("data_parallel_size", record.value("world_size", 1));
  return resolve(input);
}

std::string all_text(const std::vector<Problem>& problems) {
  std::string out;
  for (const Problem& problem : problems) out += problem.text() + "\n";
  return out;
}

bool reported(const Resolved& resolved, const std::string& path, Report::Level level) {
  for (const Report& report : resolved.reports) {
    if (report.path == path && report.level == level) return true;
  }
  return false;
}

TEST(DeepSpeedFixtures, ValidFilesMeanWhatDeepSpeedMakesOfThem) {
  int files = 0;
  const Json all = expected();
  for (const auto& [name, record] : all["valid"].items()) {
    if (record["format"] != "deepspeed") continue;
    SCOPED_TRACE(name);
    const TrainerFile trainer(record);
    const Resolved resolved = resolve_fixture(name, record, trainer.path());
    expect_within(record["effective"], effective_json(resolved), name);
    if (record.contains("report")) {
      const std::string text = record["report"];
      EXPECT_TRUE(reported(resolved, text.substr(text.find(' ') + 1), Report::Level::kWarning)) << text;
    }
    const Json optional = record.value("known_but_optional", Json::array());
    for (const auto& feature : optional) {
      bool refused = false;
      for (const Problem& problem : check_trainable(resolved))
        refused = refused || problem.path == feature.get<std::string>();
      EXPECT_TRUE(refused) << feature;
      EXPECT_TRUE(reported(resolved, feature, Report::Level::kWarning)) << feature;
    }
    ++files;
  }
  EXPECT_EQ(files, 25);
}

TEST(DeepSpeedFixtures, InvalidFilesAreRefusedWithPlaceKeyAndWayOut) {
  int files = 0;
  const Json all = expected();
  for (const auto& [name, record] : all["invalid"].items()) {
    if (!name.ends_with(".json")) continue;
    SCOPED_TRACE(name);
    ++files;
    // Not a DeepSpeed file: its trainer record belongs to another format. Read as DeepSpeed it must be refused all the
    // same.
    const TrainerFile trainer(record["format"] == "deepspeed" ? record : Json::object());
    const Json& want = record["want"];
    if (want["level"] == "ok") {
      const Resolved resolved = resolve_fixture(name, record, trainer.path());
      expect_within(want["effective"], effective_json(resolved), name);
      continue;
    }
    ASSERT_EQ(want["level"], "error");
    std::vector<Problem> problems;
    try {
      resolve_fixture(name, record, trainer.path());
      ADD_FAILURE() << "accepted";
      continue;
    } catch (const ConfigError& error) {
      problems = error.problems();
    }
    const std::string text = all_text(problems);
    bool found = !want.contains("key");
    for (const Problem& problem : problems) {
      const bool key = want.contains("key") && problem.path == want["key"];
      const bool line = !want.contains("line") || problem.line == want["line"];
      if (!key || !line) continue;
      found = true;
      if (want.contains("suggest")) {
        EXPECT_NE(problem.text().find(want["suggest"].get<std::string>()), std::string::npos)
            << want["suggest"] << " in\n"
            << text;
      }
      for (const auto& value : want.value("show_values", Json::array())) {
        EXPECT_NE(problem.text().find(value.get<std::string>()), std::string::npos) << value << " in\n" << text;
      }
    }
    EXPECT_TRUE(found) << text;
  }
  EXPECT_EQ(files, 35);
}

TEST(DeepSpeedFixtures, EveryUnresolvedAutoIsListed) {
  try {
    resolve_fixture("invalid/auto_without_trainer.json", {{"world_size", 8}}, "");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 4U) << error.what();
    EXPECT_EQ(error.problems()[3].path, "gradient_clipping");
  }
}

TEST(DeepSpeedFixtures, HiddenSizeAutosAreAllNamed) {
  const Json record = expected()["invalid"]["invalid/auto_without_hidden_size.json"];
  const TrainerFile trainer(record);
  try {
    resolve_fixture("invalid/auto_without_hidden_size.json", record, trainer.path());
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 3U) << error.what();
  }
}

TEST(DeepSpeedFixtures, TheArticlesFileRunsUnmodified) {
  ResolveInput input;
  input.file = kRoot + "article/zero3_llama.json";
  input.ranks = 8;
  input.model.hidden_size = 512;
  for (const auto& [flag, value] :
       {std::pair{"--lr", "2e-5"}, {"--dtype", "bf16"}, {"--batch-size", "2"}, {"--accumulation", "4"}}) {
    input.flags.push_back({find_flag(flag), flag, {value}});
  }
  const Resolved resolved = resolve(input);
  const TrainConfig& config = resolved.config;
  EXPECT_EQ(config.batch.train_batch_size, 64);
  EXPECT_EQ(config.zero.reduce_bucket_size, 262144);
  EXPECT_EQ(config.zero.prefetch_bucket_size, 235929);
  EXPECT_EQ(config.zero.param_persistence_threshold, 5120);
  EXPECT_EQ(config.optimizer.lr, 2e-5);
  EXPECT_EQ(config.optimizer.beta1, 0.9);
  EXPECT_EQ(config.optimizer.beta2, 0.999);
  EXPECT_EQ(config.optimizer.eps, 1e-8);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.precision, Precision::kBf16);
  EXPECT_TRUE(config.save_16bit_model);
  EXPECT_EQ(config.run.recompute, Recompute::kFull);
  EXPECT_TRUE(check_trainable(resolved).empty());
  std::string reports;
  for (const Report& report : resolved.reports) reports += report.text() + "\n";
  for (const char* phrase : {"zero3_save_16bit_model", "nothing to partition", "already in host memory"}) {
    EXPECT_NE(reports.find(phrase), std::string::npos) << phrase << " in\n" << reports;
  }
}

}  // namespace
}  // namespace intarsia::config
