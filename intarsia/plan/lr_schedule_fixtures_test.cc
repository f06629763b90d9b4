// The learning rates of the DeepSpeed fixtures, as DeepSpeed's and Hugging Face's own schedulers give them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/config/resolve.h"
#include "intarsia/plan/lr_schedule.h"

namespace intarsia::plan {
namespace {

using Json = nlohmann::json;

void expect_close(double have, double want, const std::string& at) {
  EXPECT_LE(std::fabs(have - want), 1e-9 * std::fabs(want)) << at << ": " << have << " want " << want;
}

TEST(LrScheduleFixtures, RatesAreThePeersOwn) {
  const std::string root = "tests/fixtures/configs/";
  const Json all = Json::parse(std::ifstream(root + "expected.json"));
  int compared = 0;
  for (const auto& [name, record] : all["valid"].items()) {
    if (record["format"] != "deepspeed") continue;
    SCOPED_TRACE(name);
    const Json& scheduler = record["effective"]["scheduler"];
    if (scheduler["lr_at_update"].is_null()) continue;
    config::ResolveInput input;
    input.file = root + name;
    input.ranks = record["data_parallel_size"];
    const std::string trainer = testing::TempDir() + "lr_fixture_trainer.json";
    if (record.contains("trainer")) {
      std::ofstream(trainer) << record["trainer"].dump();
      input.trainer_file = trainer;
    }
    const LrSchedule schedule = schedule_of(config::resolve(input).config);
    std::filesystem::remove(trainer);
    for (const auto& [update, rate] : scheduler["lr_at_update"].items()) {
      expect_close(schedule.lr_at_update(std::stoll(update)), rate, name + " at " + update);
      ++compared;
    }
    const Json betas = scheduler.value("beta1_at_update", Json::object());
    for (const auto& [update, beta] : betas.items()) {
      expect_close(schedule.beta1_at_update(std::stoll(update)), beta, name + " beta1 at " + update);
    }
  }
  EXPECT_EQ(compared, 5 * 21);
}

}  // namespace
}  // namespace intarsia::plan
