#include "intarsia/plan/arch/gpt2.h"

#include <gtest/gtest.h>

#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

formats::HfConfig small() {
  formats::HfConfig config;
  config.model_type = "gpt2";
  config.tensor_prefix = "transformer.";
  config.vocab_size = 50;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 6;
  config.max_position_embeddings = 32;
  config.initializer_range = 0.05;
  config.tie_word_embeddings = true;
  return config;
}

const ParamSpec& param(const ModelSpec& spec, const char* name) {
  return spec.params[static_cast<std::size_t>(spec.find(name).value())];
}

using Shape = std::vector<std::int64_t>;

TEST(Gpt2, WeightsOfProjectionsAreStoredInByOut) {
  const ModelSpec spec = gpt2_spec(small());
  EXPECT_EQ(param(spec, "transformer.h.0.attn.c_attn.weight").shape, (Shape{24, 72}));
  EXPECT_EQ(param(spec, "transformer.h.1.attn.c_attn.bias").shape, (Shape{72}));
  EXPECT_EQ(param(spec, "transformer.h.0.mlp.c_fc.weight").shape, (Shape{24, 40}));
  EXPECT_EQ(param(spec, "transformer.h.0.mlp.c_proj.weight").shape, (Shape{40, 24}));
  EXPECT_EQ(param(spec, "transformer.wpe.weight").shape, (Shape{32, 24}));
}

TEST(Gpt2, PositionsAreInTheEmbeddingsUnitAndTheHeadIsTied) {
  const ModelSpec spec = gpt2_spec(small());
  ASSERT_EQ(spec.units.size(), 4U);
  EXPECT_EQ(spec.units[0].name, "transformer.wte");
  EXPECT_EQ(spec.units[0].params.size(), 2U);
  EXPECT_EQ(spec.units[1].name, "transformer.h.0");
  EXPECT_EQ(spec.units[1].params.size(), 12U);
  EXPECT_EQ(spec.find("lm_head.weight"), 0);
  EXPECT_EQ(spec.params[0].uses, 2);
  EXPECT_EQ(param(spec, "transformer.wpe.weight").uses, 1);
  formats::HfConfig untied = small();
  untied.tie_word_embeddings = false;
  EXPECT_EQ(gpt2_spec(untied).numel() - spec.numel(), 50 * 24);
}

TEST(Gpt2, NamesWithoutPrefixAreThoseOfThePublishedFiles) {
  formats::HfConfig config = small();
  config.tensor_prefix = "";
  const ModelSpec spec = gpt2_spec(config);
  EXPECT_TRUE(spec.find("h.1.ln_2.bias").has_value());
  EXPECT_TRUE(spec.find("wte.weight").has_value());
  EXPECT_EQ(spec.numel(), gpt2_spec(small()).numel());
}

TEST(Gpt2, WhatIsAddedToTheResidualStartsSmaller) {
  const ModelSpec spec = gpt2_spec(small());
  EXPECT_EQ(param(spec, "transformer.h.0.attn.c_attn.weight").init_std, 0.05);
  EXPECT_EQ(param(spec, "transformer.h.0.attn.c_proj.weight").init_std, 0.05 / std::sqrt(4.0));
  EXPECT_EQ(param(spec, "transformer.h.1.mlp.c_proj.weight").init_std, 0.05 / std::sqrt(4.0));
  EXPECT_EQ(param(spec, "transformer.h.0.mlp.c_fc.bias").init, Init::kZeros);
  EXPECT_EQ(param(spec, "transformer.ln_f.weight").init, Init::kOnes);
}

TEST(Gpt2, DropoutIsRefusedInTrainingOnly) {
  formats::HfConfig config = small();
  EXPECT_EQ(make_run_plan({}, config, 16, 1).model.family, "gpt2");
  config.dropout = {{"resid_pdrop", 0.1}};
  try {
    make_run_plan({}, config, 16, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("\"resid_pdrop\" is 0.1"), std::string::npos) << error.what();
  }
  EXPECT_EQ(make_inference_plan(config, 1, DType::kF32).model.numel(), gpt2_spec(config).numel());
}

}  // namespace
}  // namespace intarsia::plan
