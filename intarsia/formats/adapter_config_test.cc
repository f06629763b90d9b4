#include "intarsia/formats/adapter_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

// A folder with an adapter_config.json of `text`.
class Folder {
 public:
  explicit Folder(const std::string& text)
      : path_(testing::TempDir() + "adapter_config_" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/adapter_config.json") << text;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string refusal(const std::string& text) {
  const Folder folder(text);
  try {
    read_adapter_config(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    return error.what();
  }
  return "accepted";
}

TEST(AdapterConfig, ReadsWhatPeftWrote) {
  const AdapterConfig config = read_adapter_config("tests/fixtures/lora/gpt2/adapter");
  EXPECT_EQ(config.r, 3);
  EXPECT_EQ(config.alpha, 5);
  EXPECT_DOUBLE_EQ(config.scale, 5.0 / 3);
  EXPECT_EQ(config.targets, (std::vector<std::string>{"c_attn", "c_fc", "c_proj"}));
  EXPECT_EQ(config.base_model, "tests/fixtures/hf/gpt2/model");
}

TEST(AdapterConfig, WhatIsWrittenIsReadBack) {
  const Folder folder(adapter_config_text(
      {.r = 8, .alpha = 16, .scale = 2, .targets = {"q_proj", "v_proj"}, .base_model = "a \"quoted\" place"}));
  const AdapterConfig config = read_adapter_config(folder.path());
  EXPECT_EQ(config.r, 8);
  EXPECT_EQ(config.scale, 2);
  EXPECT_EQ(config.targets.size(), 2U);
  EXPECT_EQ(config.base_model, "a \"quoted\" place");
  EXPECT_TRUE(is_adapter_directory(folder.path()));
  EXPECT_FALSE(is_adapter_directory("tests/fixtures/hf/gpt2/model"));
}

TEST(AdapterConfig, RankStabilisedAdaptersHaveTheirOwnFactor) {
  const Folder folder(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "use_rslora": true})");
  EXPECT_DOUBLE_EQ(read_adapter_config(folder.path()).scale, 3);
}

TEST(AdapterConfig, RefusesByNameWhatWouldChangeResults) {
  const auto with = [](const std::string& more) {
    return refusal(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 6, )" + more + "}");
  };
  for (const char* key : {R"("use_dora": true)", R"("bias": "all")", R"("rank_pattern": {"q_proj": 8})",
                          R"("modules_to_save": ["lm_head"])", R"("init_lora_weights": "pissa")",
                          R"("some_new_idea": 3)", R"("lora_bias": true)"}) {
    const std::string name = std::string(key).substr(0, std::string(key).find(':'));
    EXPECT_NE(with(key).find(name), std::string::npos) << with(key);
  }
  EXPECT_EQ(with(R"("some_new_idea": null, "another": {}, "use_dora": false)"), "accepted");
}

TEST(AdapterConfig, SaysAllProblemsAtOnce) {
  const std::string text = refusal(R"({"peft_type": "IA3", "r": 0})");
  for (const char* part : {"\"peft_type\" is \"IA3\"", "\"r\" is 0", "\"lora_alpha\" is missing"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace intarsia::formats
