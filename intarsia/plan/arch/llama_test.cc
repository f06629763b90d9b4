#include "intarsia/plan/arch/llama.h"

#include <gtest/gtest.h>

namespace intarsia::plan {
namespace {

formats::HfConfig small() {
  formats::HfConfig config;
  config.vocab_size = 50;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.initializer_range = 0.05;
  return config;
}

using Shape = std::vector<std::int64_t>;

TEST(Llama, UnitsAreEmbeddingBlocksAndHead) {
  const ModelSpec spec = llama_spec(small());
  ASSERT_EQ(spec.units.size(), 4U);
  EXPECT_EQ(spec.units[0].name, "model.embed_tokens");
  EXPECT_EQ(spec.units[2].name, "model.layers.1");
  EXPECT_EQ(spec.units[3].name, "head");
  EXPECT_EQ(spec.units[1].params.size(), 9U);
  for (std::size_t unit = 0; unit < spec.units.size(); ++unit)
    for (const int param : spec.units[unit].params)
      EXPECT_EQ(spec.params[static_cast<std::size_t>(param)].unit, static_cast<int>(unit));
}

TEST(Llama, ShapesFollowHeadsAndHeadSize) {
  const ModelSpec spec = llama_spec(small());
  const auto shape = [&](const char* name) { return spec.params[static_cast<std::size_t>(*spec.find(name))].shape; };
  EXPECT_EQ(shape("model.embed_tokens.weight"), (Shape{50, 24}));
  EXPECT_EQ(shape("model.layers.0.self_attn.q_proj.weight"), (Shape{32, 24}));
  EXPECT_EQ(shape("model.layers.0.self_attn.k_proj.weight"), (Shape{16, 24}));
  EXPECT_EQ(shape("model.layers.0.self_attn.v_proj.weight"), (Shape{16, 24}));
  EXPECT_EQ(shape("model.layers.1.self_attn.o_proj.weight"), (Shape{24, 32}));
  EXPECT_EQ(shape("model.layers.1.mlp.down_proj.weight"), (Shape{24, 40}));
  EXPECT_EQ(shape("model.layers.1.input_layernorm.weight"), (Shape{24}));
  EXPECT_EQ(shape("lm_head.weight"), (Shape{50, 24}));
}

TEST(Llama, TiedEmbeddingHasTwoUsesAndTheHeadsName) {
  formats::HfConfig config = small();
  config.tie_word_embeddings = true;
  const ModelSpec spec = llama_spec(config);
  ASSERT_EQ(spec.find("lm_head.weight"), 0);
  EXPECT_EQ(spec.params[0].uses, 2);
  EXPECT_EQ(spec.units.back().params.size(), 1U);
  EXPECT_EQ(llama_spec(small()).numel() - spec.numel(), 50 * 24);
}

TEST(Llama, MatricesStartNormalAndNormsAsOnes) {
  for (const ParamSpec& param : llama_spec(small()).params) {
    EXPECT_EQ(param.init, param.is_vector() ? Init::kOnes : Init::kNormal) << param.name;
    EXPECT_EQ(param.init_std, 0.05);
    EXPECT_EQ(param.tensor_parallel_dim.has_value(), !param.is_vector());
  }
}

TEST(Llama, BiasesAndNormsOfHeadsAreThereWhereTheConfigHasThem) {
  formats::HfConfig config = small();
  EXPECT_EQ(llama_spec(config).find("model.layers.0.self_attn.q_proj.bias"), std::nullopt);
  config.qkv_bias = true;
  config.qk_norm = true;
  const ModelSpec spec = llama_spec(config);
  const auto at = [&](const char* name) { return spec.params[static_cast<std::size_t>(spec.find(name).value())]; };
  EXPECT_EQ(at("model.layers.0.self_attn.q_proj.bias").shape, (Shape{32}));
  EXPECT_EQ(at("model.layers.0.self_attn.v_proj.bias").shape, (Shape{16}));
  EXPECT_EQ(at("model.layers.0.self_attn.v_proj.bias").init, Init::kZeros);
  EXPECT_EQ(at("model.layers.1.self_attn.k_norm.weight").shape, (Shape{8}));
  EXPECT_EQ(spec.find("model.layers.0.self_attn.o_proj.bias"), std::nullopt);
  config.output_bias = config.mlp_bias = true;
  EXPECT_EQ(llama_spec(config).units[1].params.size(), 9U + 2 + 7);
}

TEST(Llama, PresetsHaveTheSizesInTheirNames) {
  EXPECT_NEAR(static_cast<double>(llama_spec(*preset("llama-34m")).numel()), 34e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(llama_spec(*preset("llama-110m")).numel()), 110e6, 2e6);
  EXPECT_NEAR(static_cast<double>(llama_spec(*preset("llama-350m")).numel()), 340e6, 10e6);
  EXPECT_EQ(preset("llama-tiny")->hidden_size, 64);
  EXPECT_EQ(preset("llama-9000m"), std::nullopt);
  for (const std::string& name : preset_names()) EXPECT_TRUE(preset(name).has_value()) << name;
}

}  // namespace
}  // namespace intarsia::plan
