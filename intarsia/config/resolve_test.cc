#include "intarsia/config/resolve.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "intarsia/config/effective.h"

namespace intarsia::config {
namespace {

// A file in the tests' own directory, removed at the end.
class Scratch {
 public:
  Scratch(const std::string& name, const std::string& text) : path_(testing::TempDir() + name) {
    std::ofstream(path_) << text;
  }
  ~Scratch() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

FlagValue flag(const std::string& name, std::vector<std::string> values) {
  return {find_flag(name), name, std::move(values)};
}

Resolved with(const std::string& json, std::vector<FlagValue> flags = {}, int ranks = 4,
              const std::function<void(ResolveInput&)>& more = {}) {
  const Scratch file(
      "resolve_test_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".json", json);
  ResolveInput input;
  input.file = file.path();
  input.flags = std::move(flags);
  input.ranks = ranks;
  if (more) more(input);
  return resolve(input);
}

std::vector<Problem> problems_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.problems();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(Resolve, TextInPlaceOfAFileKeepsItsNameAndLines) {
  ResolveInput input;
  input.ranks = 4;
  input.file = "given";
  input.text = "{\"train_batch_size\": 8,\n \"gradient_clipp1ng\": 1}";
  const auto problems = problems_of([&] { (void)resolve(input); });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(problems[0].text().starts_with("given:2:2: gradient_clipp1ng")) << problems[0].text();
  input.text = "{\"train_batch_size\": 8}";
  EXPECT_EQ(resolve(input).config.batch.micro_batch_size, 2);
}

TEST(Resolve, BatchIdentity) {
  const auto batch = [](const std::string& json) {
    const BatchConfig b = with(json).config.batch;
    return std::vector<std::int64_t>{b.train_batch_size, b.micro_batch_size, b.accumulation};
  };
  using Trio = std::vector<std::int64_t>;
  EXPECT_EQ(batch(R"({"train_batch_size": 32})"), (Trio{32, 8, 1}));
  EXPECT_EQ(batch(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})"), (Trio{32, 4, 2}));
  EXPECT_EQ(batch(R"({"train_micro_batch_size_per_gpu": 2})"), (Trio{8, 2, 1}));
  EXPECT_EQ(batch(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})"), (Trio{24, 2, 3}));
  const std::vector<Problem> problems = problems_of([&] {
    batch(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})");
  });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].message.find("32 != 2*3*4"), std::string::npos) << problems[0].message;
}

TEST(Resolve, BatchNumbersThatOverflowAreNotEqual) {
  problems_of([] {
    with(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 9e18, "gradient_accumulation_steps": 9e18})");
  });
  problems_of([] { with(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 9e18})"); });
}

TEST(Resolve, ProposesTheNearestKey) {
  const std::vector<Problem> problems = problems_of([] { with(R"({"train_batch_size": 4, "gradient_clipp1ng": 1})"); });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].suggestion, "gradient_clipping");
}

TEST(Resolve, AllMistakesAtOnce) {
  const std::vector<Problem> problems = problems_of([] {
    with(
        "{\"train_batch_size\": 4,\n \"zero_optimization\": {\"stage\": 7,\n \"overlap_com\": true},\n "
        "\"gradient_clipping\": -1,\n \"intarsia\": {\"lrx\": 1, \"steps\": 1.5}}");
  });
  EXPECT_EQ(problems.size(), 5U);
  for (std::size_t i = 1; i < problems.size(); ++i) EXPECT_GE(problems[i].line, problems[i - 1].line);
}

TEST(Resolve, IntegralFloatsAreIntegersAndFractionsAreNot) {
  EXPECT_EQ(with(R"({"train_batch_size": 4, "zero_optimization": {"reduce_bucket_size": 5e8}})")
                .config.zero.reduce_bucket_size,
            500000000);
  problems_of([] { with(R"({"train_batch_size": 4, "zero_optimization": {"reduce_bucket_size": 5.5}})"); });
}

TEST(Resolve, HiddenSizesSettleTheSizes) {
  const Scratch trainer("resolve_test_hidden.json", R"({"hidden_sizes": [32, 64, 96]})");
  const Resolved resolved = with(
      R"({"train_batch_size": 4, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})",
      {}, 4, [&](ResolveInput& input) { input.trainer_file = trainer.path(); });
  EXPECT_EQ(resolved.config.zero.reduce_bucket_size, 9216);
  EXPECT_EQ(resolved.config.zero.prefetch_bucket_size, 8294);
  EXPECT_EQ(resolved.config.zero.param_persistence_threshold, 960);
}

TEST(Resolve, LossScaleDefaultsAreDeepSpeeds) {
  const LossScaleConfig scale = with(R"({"train_batch_size": 4, "fp16": {"enabled": true}})").config.loss_scale;
  EXPECT_EQ(scale.mode, LossScaleConfig::Mode::kDynamic);
  EXPECT_EQ(scale.initial, 65536);
  EXPECT_EQ(scale.window, 1000);
  EXPECT_EQ(scale.hysteresis, 2);
  EXPECT_EQ(scale.min, 1);
}

TEST(Resolve, WhatIsNotBuiltIsRefusedByTrainByName) {
  const auto first = [](const std::string& json) {
    const std::vector<Problem> refusals = check_trainable(with(json));
    return refusals.empty() ? std::string() : refusals[0].path;
  };
  EXPECT_EQ(first(R"({"train_batch_size": 4, "fp16": {"enabled": true}})"), "");
  EXPECT_EQ(
      first(R"({"train_batch_size": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})"),
      "zero_optimization.offload_optimizer.device");
  EXPECT_EQ(first(R"({"train_batch_size": 4, "optimizer": {"type": "OneBitLamb"}})"), "optimizer.type");
  EXPECT_EQ(first(R"({"train_batch_size": 4, "data_types": {"grad_accum_dtype": "bf16"}})"),
            "data_types.grad_accum_dtype");
  EXPECT_EQ(first(R"({"train_batch_size": 4, "autotuning": {"enabled": true}})"), "autotuning");
  EXPECT_EQ(first(R"({"train_batch_size": 4, "autotuning": {"enabled": false}})"), "");
  EXPECT_EQ(first(R"({"train_batch_size": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})"), "");
}

TEST(Resolve, AFlagFillsAndNeverContradicts) {
  EXPECT_EQ(with(R"({"train_micro_batch_size_per_gpu": "auto"})", {flag("--per_device_train_batch_size", {"3"})})
                .config.batch.micro_batch_size,
            3);
  EXPECT_EQ(
      with(R"({"train_micro_batch_size_per_gpu": 3})", {flag("--batch-size", {"3"})}).config.batch.micro_batch_size, 3);
  const std::vector<Problem> problems =
      problems_of([] { with(R"({"train_micro_batch_size_per_gpu": 2})", {flag("--batch-size", {"3"})}); });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].value, "2");
  EXPECT_NE(problems[0].message.find("--batch-size 3"), std::string::npos);
  const auto set = [](ResolveInput& input) { input.sets = {"train_micro_batch_size_per_gpu=5"}; };
  EXPECT_EQ(with(R"({"train_micro_batch_size_per_gpu": 2})", {flag("--batch-size", {"3"})}, 4, set)
                .config.batch.micro_batch_size,
            5);
}

TEST(Resolve, LeavesTheMicroBatchToThePlannerWhereNothingSettlesIt) {
  const auto open = [](const std::string& json, std::vector<FlagValue> flags = {}) {
    return with(json, std::move(flags), 4,
                [](ResolveInput& input) { input.for_training = input.planner_follows = true; })
        .config.batch;
  };
  const char* const micro = R"({"train_micro_batch_size_per_gpu": "auto"})";
  EXPECT_TRUE(open(micro).micro_is_open);
  EXPECT_FALSE(open(micro).total_is_given);
  EXPECT_EQ(open(micro, {flag("--accumulation", {"3"})}).accumulation, 3);
  EXPECT_FALSE(open(micro, {flag("--batch-size", {"2"})}).micro_is_open);
  EXPECT_TRUE(open(R"({"train_batch_size": "auto"})", {flag("--batch-size", {"auto"})}).micro_is_open);
  EXPECT_TRUE(open(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"})").total_is_given);
  EXPECT_EQ(
      open(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"})", {flag("--accumulation", {"2"})})
          .micro_batch_size,
      8);
  // A value beats an "auto", wherever either stands.
  EXPECT_EQ(open(R"({"train_micro_batch_size_per_gpu": 5})", {flag("--batch-size", {"auto"})}).micro_batch_size, 5);
  EXPECT_EQ(problems_of([&] { open(R"({"train_batch_size": 63, "train_micro_batch_size_per_gpu": "auto"})"); }).size(),
            1U);
  EXPECT_EQ(problems_of([&] { with(micro); }).size(), 1U);  // no planner follows
}

TEST(Resolve, LeavesTheStageToThePlannerWhereNothingSettlesIt) {
  const auto planner = [](ResolveInput& input) { input.for_training = input.planner_follows = true; };
  const auto zero = [&](const std::string& json, std::vector<FlagValue> flags = {}) {
    return with(json, std::move(flags), 4, planner).config.zero;
  };
  EXPECT_TRUE(zero(R"({"train_batch_size": 4, "intarsia": {"stage": "auto"}})").stage_is_open);
  EXPECT_TRUE(zero(R"({"train_batch_size": 4})", {flag("--stage", {"auto"})}).stage_is_open);
  EXPECT_FALSE(zero(R"({"train_batch_size": 4})").stage_is_open);
  const std::string both =
      R"({"train_batch_size": 4, "zero_optimization": {"stage": 2}, "intarsia": {"stage": "auto"}})";
  EXPECT_EQ(zero(both).stage, 2);
  EXPECT_FALSE(zero(both).stage_is_open);
  EXPECT_EQ(zero(R"({"train_batch_size": 4, "intarsia": {"stage": "auto"}})", {flag("--stage", {"1"})}).stage, 1);
  // A program of one's own has no planner.
  const auto program = [](ResolveInput& input) { input.for_training = true; };
  EXPECT_EQ(
      problems_of([&] { with(R"({"train_batch_size": 4, "intarsia": {"stage": "auto"}})", {}, 4, program); })[0].path,
      "intarsia.stage");
}

TEST(Resolve, SettingsOfTheFileAndFlagsAreOne) {
  const Resolved resolved = with(
      R"({"train_batch_size": 4, "intarsia": {"steps": 7, "shuffle": false, "lr_schedule": [0.1, 0.2], "pack": "off", "no_decay_1d": true}})");
  EXPECT_EQ(resolved.config.run.steps, 7);
  EXPECT_FALSE(resolved.config.run.shuffle);
  EXPECT_EQ(resolved.config.run.pack, Pack::kOff);
  EXPECT_TRUE(resolved.config.run.no_decay_1d);
  EXPECT_EQ(resolved.config.scheduler.type, "list");
  EXPECT_EQ(resolved.config.scheduler.list, (std::vector<double>{0.1, 0.2}));
  EXPECT_NE(resolved.origins.at("intarsia.steps").find(".json:1"), std::string::npos);
  EXPECT_EQ(resolved.origins.at("intarsia.seed"), "default");
  problems_of([] { with(R"({"train_batch_size": 4, "intarsia": {"steps": 7}})", {flag("--steps", {"8"})}); });
  const auto set = [](ResolveInput& input) { input.sets = {"intarsia.steps=9"}; };
  EXPECT_EQ(
      with(R"({"train_batch_size": 4, "intarsia": {"steps": 7}})", {flag("--steps", {"8"})}, 4, set).config.run.steps,
      9);
}

TEST(Resolve, WithoutAFileFlagsAndDefaultsSuffice) {
  ResolveInput input;
  input.for_training = true;
  input.ranks = 2;
  input.flags = {flag("--steps", {"10"}), flag("--warmup", {"0.25"}), flag("--schedule", {"cosine"}),
                 flag("--stage", {"3"}), flag("--dtype", {"bf16"})};
  const Resolved resolved = resolve(input);
  EXPECT_EQ(resolved.config.batch.train_batch_size, 2);
  EXPECT_EQ(resolved.config.zero.stage, 3);
  EXPECT_EQ(resolved.config.optimizer.lr, 5e-5);
  EXPECT_EQ(resolved.config.scheduler.warmup_steps, 3);
  EXPECT_EQ(resolved.config.scheduler.total_steps, 10);
  // The JSON it amounts to means the same.
  const Resolved again = with(resolved_config_json(resolved).dump(), {}, 2);
  EXPECT_EQ(resolved_config_json(again), resolved_config_json(resolved));
}

TEST(Resolve, AVocabularyOfAnotherSizeIsANumberOrTheTokenizers) {
  const auto rows = [](std::vector<FlagValue> flags) {
    const Resolved resolved = with(R"({"train_batch_size": 4})", std::move(flags));
    const Resolved again = with(resolved_config_json(resolved).dump());
    EXPECT_EQ(resolved_config_json(again), resolved_config_json(resolved));
    EXPECT_EQ(again.config.run.resize_vocab, resolved.config.run.resize_vocab);
    EXPECT_EQ(again.config.run.resize_vocab_multiple, resolved.config.run.resize_vocab_multiple);
    return resolved.config.run.resize_vocab;
  };
  EXPECT_EQ(rows({}), std::nullopt);
  EXPECT_EQ(rows({flag("--resize-vocab", {"12"})}), 12);
  EXPECT_EQ(rows({flag("--resize-vocab", {"tokenizer"}), flag("--pad_to_multiple_of", {"64"})}), 0);
}

TEST(Resolve, ClippingThatATrainerAsksForIsNeverIgnored) {
  const Scratch trainer("resolve_test_clip.json", R"({"max_grad_norm": 1e-9})");
  const Resolved resolved =
      with(R"({"train_batch_size": 4})", {}, 4, [&](ResolveInput& input) { input.trainer_file = trainer.path(); });
  ASSERT_EQ(check_trainable(resolved).size(), 1U);
  EXPECT_EQ(check_trainable(resolved)[0].path, "gradient_clipping");
  EXPECT_EQ(with(R"({"train_batch_size": 4, "gradient_clipping": 0.0})").config.gradient_clipping, 0);
}

TEST(Resolve, BothSpellingsOfAKeyAreOneKey) {
  const OptimizerConfig optimizer =
      with(R"({"train_batch_size": 4, "optimizer": {"type": "adam", "params": {"adamw_mode": false}}})")
          .config.optimizer;
  EXPECT_EQ(optimizer.algorithm, "adam");
  problems_of([] {
    with(
        R"({"train_batch_size": 4, "zero_optimization": {"sub_group_size": 1, "max_live_parameters": 1, "stage3_max_live_parameters": 2}})");
  });
}

TEST(Resolve, NothingThatCanBeMissingCrashes) {
  for (const char* json :
       {"[]", "3", "{}", R"({"optimizer": {}})", R"({"optimizer": 3})", R"({"scheduler": {"params": {"a": 1}}})",
        R"({"zero_optimization": true})", R"({"bf16": null})", R"({"intarsia": 3})",
        R"({"intarsia": {"lr": "x", "data": 3, "betas": [1]}})", R"({"optimizer": {"type": 7}})",
        R"({"train_batch_size": "auto", "scheduler": {"type": "OneCycle", "params": {}}})"}) {
    try {
      with(json);
    } catch (const ConfigError& error) {
      EXPECT_FALSE(error.problems().empty());
    }
  }
}

TEST(Flags, EveryNameAndKeyIsUnique) {
  std::map<std::string, int> names;
  for (const FlagSpec& spec : run_flags()) {
    EXPECT_EQ(find_flag_by_key(spec.key), &spec);
    ++names[spec.name];
    for (const std::string& alias : spec.aliases) ++names[alias];
    EXPECT_FALSE(spec.help.empty());
  }
  for (const auto& [name, count] : names) EXPECT_EQ(count, 1) << name;
}

}  // namespace
}  // namespace intarsia::config
