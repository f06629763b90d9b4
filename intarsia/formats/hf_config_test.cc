#include "intarsia/formats/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/formats/test_folder.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

const std::string kHf = "tests/fixtures/hf/";

// A valid config with some keys replaced (null removes one).
std::string config_with(const nlohmann::json& changes) {
  nlohmann::json json{{"model_type", "llama"},   {"vocab_size", 64},       {"hidden_size", 32},
                      {"intermediate_size", 48}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
  json.merge_patch(changes);
  return json.dump();
}

HfConfig read_with(const nlohmann::json& changes) { return parse_hf_config(config_with(changes), "config.json"); }

std::string refusal(ErrorKind kind, const nlohmann::json& changes) {
  return error_of(kind, [&] { read_with(changes); });
}

TEST(HfConfig, ReadsTheFixturesInBothSpellings) {
  const HfConfig gqa = read_hf_config(kHf + "llama-gqa/model");
  EXPECT_EQ(gqa.vocab_size, 367);
  EXPECT_EQ(gqa.hidden_size, 36);
  EXPECT_EQ(gqa.intermediate_size, 54);
  EXPECT_EQ(gqa.num_hidden_layers, 2);
  EXPECT_EQ(gqa.num_attention_heads, 6);
  EXPECT_EQ(gqa.num_key_value_heads, 2);
  EXPECT_EQ(gqa.head_dim, 6);
  EXPECT_EQ(gqa.max_position_embeddings, 256);
  EXPECT_EQ(gqa.rms_norm_eps, 1e-6);
  EXPECT_EQ(gqa.rope_theta, 1e6);
  EXPECT_FALSE(gqa.tie_word_embeddings);
  EXPECT_EQ(gqa.bos_token_id, 364);
  EXPECT_EQ(gqa.eos_token_ids, std::vector<std::int64_t>{365});
  EXPECT_EQ(gqa.pad_token_id, std::nullopt);

  const HfConfig tied = read_hf_config(kHf + "llama-tied/model");
  EXPECT_TRUE(tied.tie_word_embeddings);
  EXPECT_EQ(tied.rope_theta, 500000);
  EXPECT_EQ(tied.head_dim, 4);  // absent: 32 / 8
  EXPECT_EQ(tied.rope_scaling.type, RopeType::kDefault);

  EXPECT_EQ(read_hf_config(kHf + "llama-bf16/model").dtype, DType::kBF16);
}

TEST(HfConfig, OldAndNewRopeSpellingsGiveTheSameScaling) {
  const HfConfig old_form = read_hf_config(kHf + "llama-rope-old/model");
  const HfConfig new_form = read_hf_config(kHf + "llama-rope-v5/model");
  EXPECT_EQ(old_form.rope_scaling, (RopeScaling{RopeType::kLlama3, 32, 1, 4, 96}));
  EXPECT_EQ(old_form.rope_scaling, new_form.rope_scaling);
  EXPECT_EQ(old_form.rope_theta, 20000);
  EXPECT_EQ(new_form.rope_theta, 20000);
  EXPECT_EQ(old_form.eos_token_ids, (std::vector<std::int64_t>{374, 375}));
}

TEST(HfConfig, AbsentKeysHaveTransformersDefaults) {
  const HfConfig config = read_with(nlohmann::json::object());
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_EQ(parse_hf_config(R"({"model_type":"llama","vocab_size":64,"hidden_size":32,"intermediate_size":48,
      "num_hidden_layers":2,"num_attention_heads":4,"eos_token_id":null,"head_dim":null,"rope_scaling":null})",
                            "c"),
            config);
}

TEST(HfConfig, RefusesByNameWhatChangesResults) {
  const std::vector<std::pair<nlohmann::json, std::string>> cases{
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, "\"rope_scaling.type\": \"linear\""},
      {{{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}}}}, "\"rope_parameters.rope_type\": \"yarn\""},
      {{{"rope_scaling", {{"rope_type", "default"}, {"factor", 2.0}}}}, "\"rope_scaling.factor\""},
      {{{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor"},
      {{{"hidden_act", "gelu"}}, "\"hidden_act\": \"gelu\""},
      {{{"attention_bias", true}}, "\"attention_bias\""},
      {{{"mlp_bias", true}}, "\"mlp_bias\""},
      {{{"pretraining_tp", 2}}, "\"pretraining_tp\": 2"},
      {{{"attention_dropout", 0.1}}, "\"attention_dropout\": 0.1"},
      {{{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\""},
      {{{"sliding_window", 128}}, "\"sliding_window\": 128"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "\"architectures\""},
      {{{"logit_scale", 2.0}}, "\"logit_scale\""},
      {{{"dtype", "float8_e4m3fn"}}, "\"dtype\""},
      {{{"model_type", "mistral"}}, "\"model_type\" mistral is not supported; supported: llama"},
  };
  for (const auto& [changes, name] : cases) {
    const std::string message = refusal(ErrorKind::kUnsupported, changes);
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_EQ(message.find("config.json: "), 0U) << message;
  }
}

TEST(HfConfig, AcceptsTheSameSwitchesWhenTheyAreOff) {
  const HfConfig config = read_with({{"attention_bias", false},
                                     {"attention_dropout", 0.0},
                                     {"pretraining_tp", 1},
                                     {"rope_interleaved", false},
                                     {"_name_or_path", "x"},
                                     {"is_decoder", false},
                                     {"rope_scaling", {{"rope_type", "default"}}},
                                     {"torch_dtype", "torch.bfloat16"}});
  EXPECT_EQ(config.dtype, DType::kBF16);
}

TEST(HfConfig, ListsEveryWrongValueAtOnce) {
  const std::string message = refusal(ErrorKind::kFormat, {{"hidden_size", -32},
                                                           {"num_hidden_layers", "two"},
                                                           {"vocab_size", nullptr},
                                                           {"num_key_value_heads", 3},
                                                           {"rms_norm_eps", 0},
                                                           {"eos_token_id", {1, "x"}},
                                                           {"tie_word_embeddings", 1}});
  for (const char* key : {"\"hidden_size\" is -32", "\"num_hidden_layers\" is \"two\"", "\"vocab_size\" is missing",
                          "\"rms_norm_eps\" is 0", "\"eos_token_id\"", "\"tie_word_embeddings\" is 1"})
    EXPECT_NE(message.find(key), std::string::npos) << message;
}

TEST(HfConfig, RefusesImpossibleShapes) {
  EXPECT_NE(refusal(ErrorKind::kFormat, {{"num_key_value_heads", 3}}).find("multiple"), std::string::npos);
  EXPECT_NE(refusal(ErrorKind::kFormat, {{"num_attention_heads", 5}}).find("multiple"), std::string::npos);
  EXPECT_NE(refusal(ErrorKind::kFormat, {{"head_dim", 7}}).find("even"), std::string::npos);
  EXPECT_NE(refusal(ErrorKind::kFormat, {{"vocab_size", 1e300}}).find("vocab_size"), std::string::npos);
}

TEST(HfConfig, RefusesTwoRopeSettingsThatDisagree) {
  const nlohmann::json scaling{{"type", "llama3"},
                               {"factor", 8.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 64}};
  nlohmann::json same = scaling;
  same.erase("type");
  same["rope_type"] = "llama3";
  EXPECT_EQ(read_with({{"rope_scaling", scaling}, {"rope_parameters", same}}).rope_scaling.factor, 8);
  same["factor"] = 4.0;
  refusal(ErrorKind::kFormat, {{"rope_scaling", scaling}, {"rope_parameters", same}});
  nlohmann::json both = scaling;
  both["rope_type"] = "default";
  refusal(ErrorKind::kFormat, {{"rope_scaling", both}});
  nlohmann::json without = scaling;
  without.erase("low_freq_factor");
  EXPECT_NE(
      refusal(ErrorKind::kFormat, {{"rope_scaling", without}}).find("\"rope_scaling.low_freq_factor\" is missing"),
      std::string::npos);
}

TEST(HfConfig, RefusesRepeatedKeysDepthAndBrokenText) {
  const auto refused = [](const std::string& text) {
    return format_error([&] { parse_hf_config(text, "config.json"); });
  };
  EXPECT_NE(refused(R"({"model_type":"llama","hidden_size":1,"hidden_size":2})").find("\"hidden_size\" stands twice"),
            std::string::npos);
  EXPECT_NE(refused(R"({"a":)" + std::string(100000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(refused("{\n\"a\": 1,\n}").find("config.json:3"), std::string::npos);
  refused("[]");
  refused("{}");
}

class HfConfigFile : public TestFolder {};

TEST_F(HfConfigFile, MissingFolderAndMissingConfigSayWhatAModelIs) {
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { read_hf_config(path("absent")); }).find("is not a folder"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { read_hf_config(folder_); }).find("has no config.json"), std::string::npos);
}

TEST_F(HfConfigFile, WrittenConfigReadsBackEqual) {
  for (const char* name : {"llama-gqa", "llama-tied", "llama-rope-old", "llama-rope-v5", "llama-bf16"}) {
    const HfConfig config = read_hf_config(kHf + name + "/model");
    write_hf_config(folder_, config);
    EXPECT_EQ(read_hf_config(folder_), config) << name;
  }
}

TEST(Rope, Llama3ScalingHasTheKnownFrequencies) {
  for (const char* spelling : {"type", "rope_type"}) {
    const HfConfig config = read_with({{"head_dim", 8},
                                       {"rope_scaling",
                                        {{spelling, "llama3"},
                                         {"factor", 8},
                                         {"low_freq_factor", 1},
                                         {"high_freq_factor", 4},
                                         {"original_max_position_embeddings", 64}}}});
    const std::vector<float> frequencies = rope_inverse_frequencies(config);
    const std::vector<double> expected{1, 0.013042256, 0.00125, 0.000125};
    ASSERT_EQ(frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(frequencies[i] / expected[i], 1, 1e-6) << i;
  }
}

TEST(Rope, DefaultFrequenciesArePowersOfTheBase) {
  const std::vector<float> frequencies = rope_inverse_frequencies(read_with({{"head_dim", 8}}));
  const std::vector<double> expected{1, 0.1, 0.01, 0.001};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(frequencies[i] / expected[i], 1, 1e-6) << i;
}

}  // namespace
}  // namespace intarsia::formats
