// The sections activation_checkpointing, torch_autocast and data_types, key by key: honoured, reported as without
// effect, or refused; never accepted and forgotten.
#include <gtest/gtest.h>

#include <algorithm>

#include "intarsia/base/text.h"
#include "intarsia/config/resolve.h"

namespace intarsia::config {
namespace {

Resolved with(const std::string& sections, std::vector<FlagValue> flags = {}) {
  ResolveInput input;
  input.file = "given";
  input.text = concat("{\"train_batch_size\": 4, ", sections, "}");
  input.ranks = 4;
  input.flags = std::move(flags);
  input.for_training = true;
  return resolve(input);
}

std::vector<Problem> problems_of(const std::string& sections, std::vector<FlagValue> flags = {}) {
  try {
    (void)with(sections, std::move(flags));
  } catch (const ConfigError& error) {
    return error.problems();
  }
  ADD_FAILURE() << "accepted: " << sections;
  return std::vector<Problem>(1);
}

FlagValue recompute(const std::string& value) { return {find_flag("--recompute"), "--recompute", {value}}; }

std::string report_of(const Resolved& resolved, const std::string& path) {
  for (const Report& report : resolved.reports)
    if (report.path == path) return report.message;
  return {};
}

TEST(ActivationCheckpointingKeys, TheSectionMeansThatBlocksAreRecomputed) {
  EXPECT_EQ(with("\"steps_per_print\": 1").config.run.recompute, Recompute::kNone);
  const Resolved resolved = with(R"("activation_checkpointing": {})");
  EXPECT_EQ(resolved.config.run.recompute, Recompute::kFull);
  EXPECT_NE(report_of(resolved, "activation_checkpointing").find("recompute full"), std::string::npos);
}

TEST(ActivationCheckpointingKeys, NumberAndProfileAreHonoured) {
  const Resolved resolved = with(R"("activation_checkpointing": {"number_checkpoints": 3, "profile": true})");
  EXPECT_EQ(resolved.config.activation_checkpointing.number_checkpoints, 3);
  EXPECT_TRUE(resolved.config.activation_checkpointing.profile);
  EXPECT_NE(report_of(resolved, "activation_checkpointing").find("in 3 pieces"), std::string::npos);
  EXPECT_TRUE(report_of(resolved, "activation_checkpointing.profile").empty());
  EXPECT_TRUE(check_trainable(resolved).empty());
}

TEST(ActivationCheckpointingKeys, WhatHasNoEffectSaysSoByName) {
  for (const char* key : {"partition_activations", "contiguous_memory_optimization", "cpu_checkpointing",
                          "synchronize_checkpoint_boundary"}) {
    const Resolved resolved = with(concat(R"("activation_checkpointing": {")", key, R"(": true})"));
    const std::string message = report_of(resolved, concat("activation_checkpointing.", key));
    EXPECT_TRUE(message.starts_with("no effect here: ")) << key << ": " << message;
    EXPECT_EQ(resolved.config.run.recompute, Recompute::kFull) << key;
    EXPECT_TRUE(check_trainable(resolved).empty()) << key;
  }
}

TEST(ActivationCheckpointingKeys, MistakesAreNamed) {
  const auto first = [](const std::string& section) {
    return problems_of(concat(R"("activation_checkpointing": )", section))[0];
  };
  EXPECT_EQ(first(R"({"number_checkpoint": 3})").path, "activation_checkpointing.number_checkpoint");
  EXPECT_NE(first(R"({"number_checkpoint": 3})").suggestion.find("number_checkpoints"), std::string::npos);
  EXPECT_EQ(first(R"({"number_checkpoints": 0})").path, "activation_checkpointing.number_checkpoints");
  EXPECT_EQ(first(R"({"number_checkpoints": "many"})").path, "activation_checkpointing.number_checkpoints");
  EXPECT_EQ(first(R"({"profile": "yes"})").path, "activation_checkpointing.profile");
}

TEST(ActivationCheckpointingKeys, AFlagThatContradictsIsShown) {
  EXPECT_NE(problems_of(R"("activation_checkpointing": {})", {recompute("none")})[0].message.find("--recompute none"),
            std::string::npos);
  EXPECT_EQ(problems_of(R"("activation_checkpointing": {"number_checkpoints": 3})", {recompute("selective")})[0].path,
            "activation_checkpointing.number_checkpoints");
  EXPECT_EQ(with(R"("activation_checkpointing": {})", {recompute("selective")}).config.run.recompute,
            Recompute::kSelective);
}

TEST(TorchAutocastKeys, EnabledAndDtypeAreHonoured) {
  const auto autocast = [](const char* section) {
    return with(concat(R"("torch_autocast": )", section)).config.autocast;
  };
  EXPECT_EQ(autocast("{}"), std::nullopt);
  EXPECT_EQ(autocast(R"({"enabled": false, "dtype": "float16"})"), std::nullopt);
  EXPECT_EQ(autocast(R"({"enabled": true})"), Precision::kBf16);
  for (const char* word : {"bfloat16", "torch.bfloat16", "bf16"})
    EXPECT_EQ(autocast(concat(R"({"enabled": true, "dtype": ")", word, "\"}").c_str()), Precision::kBf16) << word;
  for (const char* word : {"float16", "torch.float16", "fp16", "half"})
    EXPECT_EQ(autocast(concat(R"({"enabled": true, "dtype": ")", word, "\"}").c_str()), Precision::kFp16) << word;
  const Resolved resolved = with(R"("torch_autocast": {"enabled": true})");
  EXPECT_EQ(resolved.config.precision, Precision::kFp32) << "parameters stay fp32";
  EXPECT_FALSE(report_of(resolved, "torch_autocast").empty());
}

TEST(TorchAutocastKeys, Fp16BringsTheScalerThatDeepSpeedTakesThere) {
  const LossScaleConfig scale = with(R"("torch_autocast": {"enabled": true, "dtype": "fp16"})").config.loss_scale;
  EXPECT_EQ(scale.mode, LossScaleConfig::Mode::kDynamic);
  EXPECT_EQ(scale.initial, 65536);
  EXPECT_EQ(scale.window, 2000);
  EXPECT_EQ(with(R"("torch_autocast": {"enabled": true})").config.loss_scale.mode, LossScaleConfig::Mode::kNone);
}

TEST(TorchAutocastKeys, TheListOfModulesIsRefusedUnlessItIsEmpty) {
  const auto refusals = [](const char* list) {
    return check_trainable(
        with(concat(R"("torch_autocast": {"enabled": true, "lower_precision_safe_modules": )", list, "}")));
  };
  EXPECT_TRUE(refusals("[]").empty());
  ASSERT_EQ(refusals(R"(["torch.nn.Linear"])").size(), 1U);
  EXPECT_EQ(refusals(R"(["torch.nn.Linear"])")[0].path, "torch_autocast.lower_precision_safe_modules");
}

TEST(TorchAutocastKeys, MistakesAreNamed) {
  EXPECT_EQ(problems_of(R"("torch_autocast": {"enabled": true, "dtype": "float64"})")[0].path, "torch_autocast.dtype");
  EXPECT_EQ(problems_of(R"("torch_autocast": {"enable": true})")[0].path, "torch_autocast.enable");
  for (const char* other : {"bf16", "fp16"}) {
    const Problem problem =
        problems_of(concat(R"("torch_autocast": {"enabled": true}, ")", other, R"(": {"enabled": true})"))[0];
    EXPECT_EQ(problem.path, "torch_autocast.enabled") << other;
    EXPECT_NE(problem.message.find(other), std::string::npos) << problem.message;
  }
}

TEST(DataTypesKeys, GradientsAreAddedInFp32AndOtherTypesAreRefusedByName) {
  const auto refusals = [](const char* dtype) {
    return check_trainable(
        with(concat(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": ")", dtype, "\"}")));
  };
  EXPECT_TRUE(refusals("fp32").empty());
  for (const char* dtype : {"bf16", "bfp16", "fp16"}) {
    ASSERT_EQ(refusals(dtype).size(), 1U) << dtype;
    EXPECT_EQ(refusals(dtype)[0].path, "data_types.grad_accum_dtype");
    EXPECT_NE(refusals(dtype)[0].suggestion.find("fp32"), std::string::npos) << "says what to write instead";
  }
  EXPECT_EQ(problems_of(R"("data_types": {"grad_accum_dtype": "int8"})")[0].path, "data_types.grad_accum_dtype");
}

TEST(DataTypesKeys, TypesThatOtherKeysDecideHaveNoEffect) {
  for (const char* key : {"param_dtype", "buffer_dtype"}) {
    const Resolved resolved = with(concat(R"("data_types": {")", key, R"(": "bf16"})"));
    EXPECT_TRUE(report_of(resolved, concat("data_types.", key)).starts_with("no effect here: ")) << key;
  }
}

}  // namespace
}  // namespace intarsia::config
