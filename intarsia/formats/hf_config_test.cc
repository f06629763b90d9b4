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
  EXPECT_EQ(gqa.norm_eps, 1e-6);
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
  EXPECT_EQ(config.norm_eps, 1e-6);
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
      {{{"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}}}, "\"rope_scaling.type\": \"longrope\""},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}}}, "\"rope_scaling.beta_fast\""},
      {{{"rope_scaling", {{"rope_type", "default"}, {"factor", 2.0}}}}, "\"rope_scaling.factor\""},
      {{{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor"},
      {{{"hidden_act", "gelu"}}, "\"hidden_act\": \"gelu\""},
      {{{"model_type", "mistral"}, {"attention_bias", true}}, "\"attention_bias\""},
      {{{"model_type", "qwen3"}, {"mlp_bias", true}}, "\"mlp_bias\""},
      {{{"model_type", "qwen2"}, {"sliding_chunk", 3}},
       "\"sliding_chunk\": 3 is not supported; this key is unknown for qwen2"},
      {{{"model_type", "mistral"}, {"layer_types", {"sliding_attention", "full_attention"}}}, "\"layer_types\""},
      {{{"pretraining_tp", 2}}, "\"pretraining_tp\": 2"},
      {{{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\""},
      {{{"sliding_window", 128}}, "\"sliding_window\": 128"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "\"architectures\""},
      {{{"logit_scale", 2.0}}, "\"logit_scale\""},
      {{{"dtype", "float8_e4m3fn"}}, "\"dtype\""},
      {{{"model_type", "mixtral"}},
       "\"model_type\" mixtral is not supported; supported: llama, mistral, qwen2, qwen3, gpt2"},
      {{{"model_type", "mistral"}}, "it must list \"MistralForCausalLM\""},
  };
  for (auto [changes, name] : cases) {
    if (changes.contains("model_type")) changes["num_key_value_heads"] = 2;
    if (name.find("MistralForCausalLM") != std::string::npos) changes["architectures"] = {"LlamaForCausalLM"};
    const std::string message = refusal(ErrorKind::kUnsupported, changes);
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_EQ(message.find("config.json: "), 0U) << message;
  }
}

TEST(HfConfig, FamiliesHaveTheirOwnDefaults) {
  const HfConfig mistral = read_with({{"model_type", "mistral"}, {"num_attention_heads", 8}});
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(mistral.max_position_embeddings, 131072);
  EXPECT_EQ(mistral.window_of(1), 4096);
  const HfConfig qwen2 = read_with({{"model_type", "qwen2"}, {"num_key_value_heads", 2}});
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_EQ(qwen2.window_of(1), 0);
  const HfConfig qwen3 = read_with({{"model_type", "qwen3"}, {"num_key_value_heads", 2}, {"attention_bias", true}});
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.output_bias && !qwen3.mlp_bias);
  const HfConfig llama = read_with({{"attention_bias", true}, {"mlp_bias", true}, {"attention_dropout", 0.25}});
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  EXPECT_EQ(llama.dropout.at("attention_dropout"), 0.25);
}

TEST(HfConfig, WindowsOfMistralAndQwen) {
  const HfConfig full = read_hf_config(kHf + "mistral-full/model");
  EXPECT_EQ(full.window_of(0), 0);  // null, where an absent key would mean 4096
  const HfConfig window = read_hf_config(kHf + "mistral-window/model");
  EXPECT_EQ(window.window_of(0), 6);
  EXPECT_EQ(window.window_of(1), 6);
  EXPECT_EQ(read_hf_config(kHf + "qwen2-tied/model").window_of(2), 0);  // use_sliding_window is false

  const nlohmann::json qwen{
      {"model_type", "qwen3"}, {"num_key_value_heads", 2}, {"use_sliding_window", true}, {"sliding_window", 5}};
  nlohmann::json by_number = qwen, by_list = qwen;
  by_number["max_window_layers"] = 1;
  by_list["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(read_with(by_number).windowed_layers, (std::vector<bool>{false, true}));
  EXPECT_EQ(read_with(by_list).windowed_layers, (std::vector<bool>{true, false}));
  EXPECT_EQ(read_with(by_list).window_of(0), 5);
  by_list["use_sliding_window"] = false;
  EXPECT_NE(refusal(ErrorKind::kFormat, by_list).find("no sliding window"), std::string::npos);
  by_list["layer_types"] = {"full_attention"};
  EXPECT_NE(refusal(ErrorKind::kFormat, by_list).find("a list of 2 texts"), std::string::npos);
}

TEST(HfConfig, ReadsGpt2AndHowItsWeightsAreCalled) {
  const HfConfig gpt2 = read_hf_config(kHf + "gpt2/model"), hub = read_hf_config(kHf + "gpt2-hub/model");
  EXPECT_EQ(gpt2.tensor_prefix, "transformer.");
  EXPECT_EQ(hub.tensor_prefix, "");
  EXPECT_EQ(gpt2.intermediate_size, 128);  // null: 4 x 32
  EXPECT_EQ(hub.intermediate_size, 82);
  EXPECT_EQ(hub.head_dim, 8);
  EXPECT_EQ(hub.max_position_embeddings, 56);
  EXPECT_EQ(gpt2.norm_eps, 1e-4);
  EXPECT_TRUE(hub.tie_word_embeddings);  // absent
  EXPECT_TRUE(hub.dropout.empty());

  nlohmann::json json{{"model_type", "gpt2"}, {"vocab_size", 64}, {"n_embd", 32}, {"n_layer", 2}, {"n_head", 4}};
  EXPECT_EQ(parse_hf_config(json.dump(), "c").dropout.at("resid_pdrop"), 0.1);
  json["reorder_and_upcast_attn"] = true;
  json["activation_function"] = "relu";
  const std::string message = error_of(ErrorKind::kUnsupported, [&] { parse_hf_config(json.dump(), "c"); });
  EXPECT_NE(message.find("\"reorder_and_upcast_attn\""), std::string::npos) << message;
  EXPECT_NE(message.find("\"activation_function\": \"relu\""), std::string::npos) << message;
}

TEST(HfConfig, YarnsAttentionFactorComesFromWhateverIsGiven) {
  const auto factor_of = [](nlohmann::json scaling) {
    scaling["rope_type"] = "yarn";
    scaling["factor"] = 4.0;
    return read_with({{"rope_scaling", scaling}}).rope_scaling.attention_factor;
  };
  EXPECT_NEAR(factor_of(nlohmann::json::object()), 1.138629436, 1e-9);  // 0.1 ln 4 + 1
  EXPECT_EQ(factor_of({{"attention_factor", 0.5}}), 0.5);
  EXPECT_NEAR(factor_of({{"mscale", 2.0}, {"mscale_all_dim", 1.0}}), 1.277258872 / 1.138629436, 1e-9);
  EXPECT_NEAR(factor_of({{"mscale", 2.0}}), 1.138629436, 1e-9);  // one alone means nothing
}

TEST(HfConfig, DynamicRopeGoesBeyondTheModelsMaximum) {
  const HfConfig config =
      read_with({{"max_position_embeddings", 100}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.5}}}});
  EXPECT_EQ(config.longest_sequence(), 250);
  EXPECT_EQ(rope_inverse_frequencies(config, 100), rope_inverse_frequencies(read_with(nlohmann::json::object())));
  EXPECT_LT(rope_inverse_frequencies(config, 101)[1], rope_inverse_frequencies(config, 100)[1]);
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
  for (const char* name : {"llama-gqa", "llama-tied", "llama-rope-old", "llama-rope-v5", "llama-bf16", "mistral-full",
                           "mistral-window", "qwen2-tied", "qwen3", "gpt2", "gpt2-hub"}) {
    HfConfig config = read_hf_config(kHf + name + "/model");
    write_hf_config(folder_, config);
    if (config.model_type == "gpt2") config.tensor_prefix = "transformer.";  // there are no weights to look at
    EXPECT_EQ(read_hf_config(folder_), config) << name;
  }
  const nlohmann::json yarn{
      {"type", "yarn"}, {"factor", 3}, {"mscale", 1.5}, {"mscale_all_dim", 1}, {"truncate", false}};
  for (const nlohmann::json& changes :
       {nlohmann::json{{"rope_scaling", yarn}, {"attention_bias", true}, {"attention_dropout", 0.5}},
        nlohmann::json{{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}, {"mlp_bias", true}},
        nlohmann::json{{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}},
        nlohmann::json{{"model_type", "qwen2"},
                       {"num_key_value_heads", 1},
                       {"use_sliding_window", true},
                       {"layer_types", {"sliding_attention", "full_attention"}}}}) {
    const HfConfig config = read_with(changes);
    write_hf_config(folder_, config);
    EXPECT_EQ(read_hf_config(folder_), config) << changes;
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
