#include "intarsia/plan/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/config/train_config.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

formats::HfConfig llama() { return preset("llama-tiny").value(); }

formats::HfConfig gpt2() {
  formats::HfConfig config = llama();
  config.model_type = "gpt2";
  return config;
}

const ParamSpec& param(const ModelSpec& spec, const std::string& name) {
  return spec.params[static_cast<std::size_t>(spec.find(name).value())];
}

ModelSpec adapted(const formats::HfConfig& config, std::int64_t r, std::vector<std::string> targets = {}) {
  ModelSpec model = model_spec(config);
  add_lora({.r = r, .targets = std::move(targets)}, model);
  return model;
}

using Shape = std::vector<std::int64_t>;

TEST(Lora, AdaptersStandInTheirLayersUnitAndAllElseIsFrozen) {
  const ModelSpec model = adapted(llama(), 4, {"q_proj", "down_proj"});
  const ParamSpec& a = param(model, "model.layers.1.mlp.down_proj.lora_A.weight");
  const ParamSpec& b = param(model, "model.layers.1.mlp.down_proj.lora_B.weight");
  EXPECT_EQ(a.shape, (Shape{4, 176}));
  EXPECT_EQ(b.shape, (Shape{64, 4}));
  EXPECT_EQ(a.unit, param(model, "model.layers.1.mlp.down_proj.weight").unit);
  const auto& of_unit = model.units[static_cast<std::size_t>(a.unit)].params;
  EXPECT_NE(std::ranges::find(of_unit, *model.find(a.name)), of_unit.end());
  for (const ParamSpec& each : model.params) EXPECT_EQ(each.frozen, !is_adapter(each)) << each.name;
  EXPECT_EQ(std::ranges::count_if(model.params, is_adapter), 2 * 2 * 2);
}

TEST(Lora, Gpt2sWeightsAreInByOut) {
  const ModelSpec model = adapted(gpt2(), 2, {"c_attn", "mlp.c_proj"});
  EXPECT_EQ(param(model, "h.0.attn.c_attn.lora_A.weight").shape, (Shape{2, 64}));
  EXPECT_EQ(param(model, "h.0.attn.c_attn.lora_B.weight").shape, (Shape{192, 2}));
  EXPECT_EQ(param(model, "h.0.mlp.c_proj.lora_A.weight").shape, (Shape{2, 176}));
  EXPECT_FALSE(model.find("h.0.attn.c_proj.lora_A.weight").has_value());
  EXPECT_EQ(peft_name(model, "h.0.attn.c_attn.lora_A.weight"),
            "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
}

TEST(Lora, WithoutTargetsTheyAreThoseOfPeft) {
  EXPECT_EQ(lora_plan({.r = 2, .targets = {}}, model_spec(llama())).targets,
            (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(lora_plan({.r = 2, .targets = {}}, model_spec(gpt2())).targets, (std::vector<std::string>{"c_attn"}));
  EXPECT_EQ(lora_plan({.r = 4, .alpha = 6, .targets = {}}, model_spec(llama())).scale(), 1.5);
}

TEST(Lora, RefusesATargetThatNoLayerHas) {
  for (const char* target : {"query", "lm_head", "embed_tokens", "proj"}) {
    try {
      adapted(llama(), 2, {"q_proj", target});
      FAIL() << target;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(target), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("there are q_proj, k_proj"), std::string::npos) << error.what();
    }
  }
}

TEST(Lora, WithoutAdaptersTheModelIsItsOwnAgain) {
  const ModelSpec before = model_spec(llama()), after = without_adapters(adapted(llama(), 4));
  ASSERT_EQ(after.params.size(), before.params.size());
  for (std::size_t unit = 0; unit < before.units.size(); ++unit)
    EXPECT_EQ(after.units[unit].params, before.units[unit].params);
}

TEST(Lora, FirstValuesAreUniformAndZero) {
  const ModelSpec model = adapted(llama(), 8, {"down_proj"});
  const LoraWeights weights(std::make_unique<RandomWeights>(7), 7);
  const auto values = [&](const ParamSpec& of, Range range) {
    std::vector<float> out(static_cast<std::size_t>(range.size()));
    weights.read(of, range, out.data());
    return out;
  };
  const ParamSpec& a = param(model, "model.layers.0.mlp.down_proj.lora_A.weight");
  const std::vector<float> all = values(a, {0, a.numel()});
  const double bound = 1 / std::sqrt(176.0);
  double squares = 0;
  for (const float value : all) {
    EXPECT_LE(std::abs(value), bound);
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(squares / static_cast<double>(all.size()), bound * bound / 3, 0.1 * bound * bound);
  const std::vector<float> piece = values(a, {101, 333});
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + 101)) << "any piece has the same bits";
  EXPECT_NE(values(param(model, "model.layers.1.mlp.down_proj.lora_A.weight"), {0, 8}), values(a, {0, 8}));
  EXPECT_EQ(values(param(model, "model.layers.0.mlp.down_proj.lora_B.weight"), {0, 9}), std::vector<float>(9, 0.0F));
}

TEST(Lora, RefusesToFreezeByNameToo) {
  config::TrainConfig config;
  config.lora = {.r = 2, .targets = {}};
  config.run.freeze = {"*norm*"};
  EXPECT_THROW(make_run_plan(config, llama(), 16, 1), Error);
}

// SmolLM2-135M: hidden 576, 30 layers, 9 heads of which 3 have keys, tied.
TEST(Lora, TakesAFractionOfFullFineTuningsMemory) {
  formats::HfConfig model = llama();
  model.hidden_size = 576;
  model.intermediate_size = 1536;
  model.num_hidden_layers = 30;
  model.num_attention_heads = 9;
  model.num_key_value_heads = 3;
  model.head_dim = 64;
  model.vocab_size = 49152;
  model.tie_word_embeddings = true;
  for (const int stage : {0, 3}) {
    config::TrainConfig config;
    config.precision = config::Precision::kBf16;
    config.run.ranks = 2;
    config.zero.stage = stage;
    const auto full = static_cast<double>(state_bytes(make_run_plan(config, model, 256, 1)));
    config.lora = {.r = 16, .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}};
    const RunPlan plan = make_run_plan(config, model, 256, 1);
    const auto adapters = static_cast<double>(state_bytes(plan));
    EXPECT_LE(adapters, 0.4 * full) << "stage " << stage;
    EXPECT_GE(adapters, 0.1 * full) << "stage " << stage << ": the 16-bit weights alone are a ninth";
  }
}

}  // namespace
}  // namespace intarsia::plan
