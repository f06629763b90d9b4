#include "intarsia/plan/arch/llama.h"

#include <array>

#include "intarsia/base/error.h"
#include "intarsia/plan/arch/spec_builder.h"

namespace intarsia::plan {
namespace {

struct Preset {
  const char* name;
  std::int64_t hidden, layers, heads, ffn, vocab;
};

constexpr std::array kPresets{
    Preset{"llama-tiny", 64, 2, 4, 176, 256},
    Preset{"llama-34m", 512, 8, 8, 1408, 8192},
    Preset{"llama-110m", 768, 12, 12, 2048, 16384},
    Preset{"llama-350m", 1024, 24, 16, 2816, 16384},
};

}  // namespace

ModelSpec llama_spec(const formats::HfConfig& config) {
  ModelSpec spec;
  spec.family = config.model_type;
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.max_positions = config.longest_sequence();

  const std::int64_t hidden = config.hidden_size;
  const std::int64_t queries = config.num_attention_heads * config.head_dim;
  const std::int64_t keys = config.num_key_value_heads * config.head_dim;
  SpecBuilder build(&spec, config.initializer_range);
  build.begin_unit("model.embed_tokens");
  ParamSpec& embedding = build.matrix("model.embed_tokens.weight", config.vocab_size, hidden, 0);
  if (config.tie_word_embeddings) {
    embedding.uses = 2;
    embedding.tied_names = {"lm_head.weight"};
  }
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string name = concat("model.layers.", layer);
    build.begin_unit(name);
    const auto linear = [&](const char* part, std::int64_t out, std::int64_t in, int parallel_dim, bool biased) {
      build.matrix(name + part + ".weight", out, in, parallel_dim);
      if (biased) build.bias(name + part + ".bias", out, parallel_dim == 0);
    };
    linear(".self_attn.q_proj", queries, hidden, 0, config.qkv_bias);
    linear(".self_attn.k_proj", keys, hidden, 0, config.qkv_bias);
    linear(".self_attn.v_proj", keys, hidden, 0, config.qkv_bias);
    linear(".self_attn.o_proj", hidden, queries, 1, config.output_bias);
    if (config.qk_norm) {
      build.norm(name + ".self_attn.q_norm.weight", config.head_dim);
      build.norm(name + ".self_attn.k_norm.weight", config.head_dim);
    }
    linear(".mlp.gate_proj", config.intermediate_size, hidden, 0, config.mlp_bias);
    linear(".mlp.up_proj", config.intermediate_size, hidden, 0, config.mlp_bias);
    linear(".mlp.down_proj", hidden, config.intermediate_size, 1, config.mlp_bias);
    build.norm(name + ".input_layernorm.weight", hidden);
    build.norm(name + ".post_attention_layernorm.weight", hidden);
  }
  build.begin_unit("head");
  build.norm("model.norm.weight", hidden);
  if (!config.tie_word_embeddings) build.matrix("lm_head.weight", config.vocab_size, hidden, 0);
  return spec;
}

std::optional<formats::HfConfig> preset(const std::string& name) {
  for (const Preset& row : kPresets) {
    if (name != row.name) continue;
    formats::HfConfig config;
    config.vocab_size = row.vocab;
    config.hidden_size = row.hidden;
    config.intermediate_size = row.ffn;
    config.num_hidden_layers = row.layers;
    config.num_attention_heads = row.heads;
    config.num_key_value_heads = row.heads;
    config.head_dim = row.hidden / row.heads;
    return config;
  }
  return std::nullopt;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& row : kPresets) names.emplace_back(row.name);
  return names;
}

}  // namespace intarsia::plan
