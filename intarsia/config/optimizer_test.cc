// Optimizers, groups of parameters, the moving average and schedules, as files and flags ask for them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "intarsia/config/effective.h"
#include "intarsia/config/resolve.h"

namespace intarsia::config {
namespace {

FlagValue flag(const std::string& name, std::vector<std::string> values) {
  return {find_flag(name), name, std::move(values)};
}

Resolved with(const std::string& json, std::vector<FlagValue> flags = {}, bool for_training = true) {
  const std::string path =
      testing::TempDir() + "optimizer_test_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
  std::ofstream(path) << json;
  ResolveInput input;
  input.file = json.empty() ? "" : path;
  input.flags = std::move(flags);
  input.for_training = for_training;
  const Resolved resolved = resolve(input);
  std::filesystem::remove(path);
  return resolved;
}

Resolved with_optimizer(const std::string& section) {
  return with(R"({"train_batch_size": 4, "optimizer": )" + section + "}");
}

std::string first_problem(const std::string& json, std::vector<FlagValue> flags = {}) {
  try {
    with(json, std::move(flags));
  } catch (const ConfigError& error) {
    return error.problems()[0].path + ": " + error.problems()[0].message;
  }
  return "accepted";
}

TEST(OptimizerConfig, TypesHaveTheirOwnDefaults) {
  const OptimizerConfig lion = with_optimizer(R"({"type": "Lion"})").config.optimizer;
  EXPECT_EQ(lion.algorithm, "lion");
  EXPECT_EQ(lion.beta2, 0.99);
  const OptimizerConfig muon =
      with_optimizer(R"({"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 3e-4}})").config.optimizer;
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(muon.muon_lr, 0.02);
  EXPECT_EQ(muon.adam_lr, 3e-4);
  const OptimizerConfig adafactor =
      with_optimizer(R"({"type": "Adafactor", "params": {"eps": [1e-8, 1e-2]}})").config.optimizer;
  EXPECT_EQ(adafactor.eps, 1e-8);
  EXPECT_EQ(adafactor.eps2, 1e-2);
  EXPECT_EQ(adafactor.beta2_decay, -0.8);
  EXPECT_EQ(with_optimizer(R"({"type": "Adagrad"})").config.optimizer.eps, 1e-10);
  EXPECT_EQ(
      with_optimizer(R"({"type": "SGD", "params": {"momentum": 0.9, "dampening": 0.1}})").config.optimizer.dampening,
      0.1);
}

// behaviours, kind 4: both spellings of one switch mean the same.
TEST(OptimizerConfig, BothSpellingsOfAdamsSwitchMeanTheSame) {
  for (const char* name : {"adam_w_mode", "adamw_mode"}) {
    const std::string section = std::string(R"({"type": "Adam", "params": {")") + name + R"(": false}})";
    EXPECT_EQ(with_optimizer(section).config.optimizer.algorithm, "adam") << name;
  }
  EXPECT_EQ(
      first_problem(
          R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"adam_w_mode": true, "adamw_mode": false}}})"),
      "optimizer.params.adamw_mode: means optimizer.params.adam_w_mode, which is true in line 1");
}

TEST(OptimizerConfig, FlagsNameEveryOptimizer) {
  for (const auto& [word, type, algorithm] : {std::tuple{"lion", "Lion", "lion"},
                                              {"LAMB", "Lamb", "lamb"},
                                              {"Muon", "Muon", "muon"},
                                              {"adafactor", "Adafactor", "adafactor"},
                                              {"sgd", "SGD", "sgd"},
                                              {"adagrad", "Adagrad", "adagrad"},
                                              {"adamw_torch", "AdamW", "adamw"}}) {
    const Resolved resolved = with("", {flag("--optimizer", {word}), flag("--lr", {"1e-3"})});
    EXPECT_EQ(resolved.config.optimizer.type, type);
    EXPECT_EQ(resolved.config.optimizer.algorithm, algorithm);
    EXPECT_EQ(resolved.config.optimizer.lr, 1e-3);
    EXPECT_TRUE(check_trainable(resolved).empty());
    // The JSON it amounts to means the same.
    const Resolved again = with(resolved_config_json(resolved).dump());
    EXPECT_EQ(resolved_config_json(again), resolved_config_json(resolved)) << word;
  }
}

TEST(OptimizerConfig, WhatDoesNotFitIsAMistake) {
  const std::string sgd = R"({"train_batch_size": 4, "optimizer": {"type": "SGD", "params": {"nesterov": true}}})";
  EXPECT_EQ(first_problem(sgd),
            "optimizer.params.nesterov: needs a momentum above 0 and a dampening of 0, as in torch");
  EXPECT_EQ(first_problem("", {flag("--optimizer", {"sgd"}), flag("--betas", {"0.9", "0.99"})}),
            "--betas: SGD has no betas");
  EXPECT_EQ(first_problem("", {flag("--optimizer", {"adafactor"}), flag("--eps", {"1e-8"})}),
            "--eps: Adafactor's eps are two numbers, optimizer.params.eps of the JSON");
  EXPECT_EQ(first_problem(R"({"train_batch_size": 4, "optimizer": {"type": "Lion"}})", {flag("--optimizer", {"sgd"})}),
            "optimizer.type: contradicts --optimizer sgd");
  EXPECT_EQ(check_trainable(with_optimizer(R"({"type": "OneBitAdam"})"))[0].message.substr(0, 23),
            "OneBitAdam is not built");
}

TEST(OptimizerConfig, GroupsAndAverageAreRead) {
  const Resolved resolved = with(
      R"({"train_batch_size": 4, "intarsia": {"ema": {"decay": 0.999}, "param_groups": [
          {"params": "*norm*", "weight_decay": 0}, {"params": ["model.embed*", "lm_head*"], "lr": 1e-4}]}})");
  const OptimizerConfig& optimizer = resolved.config.optimizer;
  EXPECT_EQ(optimizer.ema_decay, 0.999);
  ASSERT_EQ(optimizer.groups.size(), 2U);
  EXPECT_EQ(optimizer.groups[0].weight_decay, 0);
  EXPECT_FALSE(optimizer.groups[0].lr);
  EXPECT_EQ(optimizer.groups[1].patterns, (std::vector<std::string>{"model.embed*", "lm_head*"}));
  EXPECT_EQ(optimizer.groups[1].lr, 1e-4);
  const Resolved again = with(resolved_config_json(resolved).dump());
  EXPECT_EQ(resolved_config_json(again), resolved_config_json(resolved));
}

// convert asks it of a run: the counter of torch's class is a tensor in DeepSpeed's checkpoints.
TEST(OptimizerConfig, TorchAdamStaysInTheJsonThatARunKeeps) {
  const Resolved resolved = with_optimizer(R"({"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": true}})");
  EXPECT_TRUE(with(resolved_config_json(resolved).dump()).config.optimizer.torch_adam);
}

TEST(OptimizerConfig, MistakesInGroupsAreNamed) {
  const auto groups = [](const std::string& json) { return first_problem("", {flag("--param-groups", {json})}); };
  EXPECT_EQ(groups("{}"), "--param-groups: a list of groups is expected");
  EXPECT_EQ(groups(R"([{"lr": 1}])"), "--param-groups[0]: the group has no params");
  EXPECT_EQ(groups(R"([{"params": "x", "lr": -1}])"), "--param-groups[0].lr: a number of at least 0 is expected");
  EXPECT_EQ(groups(R"([{"params": "x", "rate": 1, "lr": 1}])"),
            "--param-groups[0].rate: unknown key; a group has params, lr and weight_decay");
  EXPECT_EQ(groups(R"([{"params": "x"}])"),
            "--param-groups[0]: the group has neither lr nor weight_decay, so it changes nothing");
  EXPECT_EQ(groups("[").substr(0, 33), "--param-groups: JSON is expected:");
  EXPECT_EQ(first_problem("", {flag("--ema", {R"({"decay": 1})"})}),
            "--ema.decay: a number above 0 and below 1 is expected");
}

TEST(LoraSettings, AreReadAndShown) {
  const Resolved resolved = with(
      R"({"train_batch_size": 4, "intarsia": {"lora": {"r": 8, "alpha": 32, "dropout": 0.05, "targets": ["q_proj", "o_proj"]}}})");
  EXPECT_EQ(resolved.config.lora.r, 8);
  EXPECT_EQ(resolved.config.lora.alpha, 32);
  EXPECT_EQ(resolved.config.lora.dropout, 0.05);
  EXPECT_EQ(resolved.config.lora.targets, (std::vector<std::string>{"q_proj", "o_proj"}));
  EXPECT_EQ(effective_json(resolved)["lora"]["alpha"], 32);
  const Resolved again = with(resolved_config_json(resolved).dump());
  EXPECT_EQ(resolved_config_json(again), resolved_config_json(resolved));
  EXPECT_EQ(with("", {flag("--lora", {R"({"r": 4})"})}).config.lora.alpha, 16);
  EXPECT_TRUE(effective_json(with(""))["lora"].is_null());
}

TEST(LoraSettings, MistakesAreNamed) {
  const auto lora = [](const std::string& json) { return first_problem("", {flag("--lora", {json})}); };
  EXPECT_EQ(lora("{}"), "--lora: an object with r is expected");
  EXPECT_EQ(lora("[8]"), "--lora: an object with r is expected");
  EXPECT_EQ(lora(R"({"r": 0})"), "--lora.r: a whole number from 1 to 65536 is expected");
  EXPECT_EQ(lora(R"({"r": 2.5})"), "--lora.r: a whole number from 1 to 65536 is expected");
  EXPECT_EQ(lora(R"({"r": 2, "alpha": -1})"), "--lora.alpha: a number above 0 is expected");
  for (const char* wrong : {"1", "-0.1", "\"a\""})
    EXPECT_EQ(lora(concat(R"({"r": 2, "dropout": )", wrong, "}")),
              "--lora.dropout: a number from 0 to below 1 is expected");
  EXPECT_EQ(lora(R"({"r": 2, "targets": "q_proj"})"), "--lora.targets: a list of names of linear layers is expected");
  EXPECT_EQ(lora(R"({"r": 2, "targets": []})"), "--lora.targets: a list of names of linear layers is expected");
  EXPECT_EQ(lora(R"({"r": 2, "rank": 2})"), "--lora.rank: unknown key; lora has r, alpha, dropout and targets");
}

TEST(SchedulerConfig, HuggingFacesParametersAreReadByTheirNames) {
  const auto scheduler = [](const char* type, const char* params) {
    return with("", {flag("--lr", {"0.01"}), flag("--steps", {"100"}), flag("--schedule", {type}),
                     flag("--lr_scheduler_kwargs", {params})})
        .config.scheduler;
  };
  EXPECT_EQ(scheduler("cosine_with_restarts", R"({"num_cycles": 3})").num_cycles, 3);
  EXPECT_EQ(scheduler("polynomial", R"({"power": 2, "lr_end": 1e-4})").lr_end, 1e-4);
  EXPECT_EQ(scheduler("inverse_sqrt", R"({"timescale": 50})").timescale, 50);
  EXPECT_DOUBLE_EQ(scheduler("cosine_with_min_lr", R"({"min_lr": 1e-3})").min_lr_ratio, 0.1);
  const SchedulerConfig stable = scheduler("warmup_stable_decay", R"({"num_decay_steps": 20, "decay_type": "1-sqrt"})");
  EXPECT_EQ(stable.num_decay_steps, 20);
  EXPECT_FALSE(stable.num_stable_steps);
  EXPECT_EQ(stable.decay_type, "1-sqrt");
  EXPECT_EQ(first_problem("", {flag("--schedule", {"linear"}), flag("--schedule-params", {R"({"power": 2})"})}),
            "--schedule-params.power: not a parameter of linear, which has none");
  EXPECT_EQ(first_problem("", {flag("--schedule", {"warmup_stable_decay"})}),
            "--schedule: the schedule needs num_decay_steps, the updates of its fall");
  EXPECT_EQ(first_problem("", {flag("--schedule", {"polynomial"}), flag("--lr", {"1e-7"}),
                               flag("--schedule-params", {R"({"lr_end": 1e-6})"})}),
            "--schedule-params.lr_end: less than the learning rate, 1e-07, is expected");
}

TEST(SchedulerConfig, WhatDependsOnTheLengthWaitsForIt) {
  SchedulerConfig flags =
      with("", {flag("--epochs", {"2"}), flag("--schedule", {"linear"}), flag("--warmup", {"0.1"})}).config.scheduler;
  EXPECT_TRUE(waits_for_length(flags));
  settle_length(flags, 95);
  EXPECT_FALSE(waits_for_length(flags));
  EXPECT_EQ(flags.warmup_steps, 10);
  EXPECT_EQ(flags.total_steps, 95);
  const std::string json =
      R"({"train_batch_size": 4, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}})";
  Resolved file = with(json, {flag("--epochs", {"2"}), flag("--warmup", {"0.1"})});
  EXPECT_EQ(effective_json(file)["scheduler"]["params"]["total_num_steps"], "auto");
  EXPECT_EQ(effective_json(file)["scheduler"]["params"]["warmup_num_steps"], "auto");
  settle_length(file.config.scheduler, 95);
  EXPECT_EQ(effective_json(file)["scheduler"]["params"]["total_num_steps"], 95);
  EXPECT_EQ(file.config.scheduler.warmup_steps, 10);
  EXPECT_EQ(file.config.scheduler.total_steps, 95);
  // A length that is known is used at once.
  EXPECT_FALSE(waits_for_length(with(json, {flag("--steps", {"40"}), flag("--warmup", {"0.1"})}).config.scheduler));
}

}  // namespace
}  // namespace intarsia::config
