#include "intarsia/plan/arch/llama.h"

#include <array>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

// Builds units one after another.
class SpecBuilder {
 public:
  SpecBuilder(ModelSpec* spec, double init_std) : spec_(spec), init_std_(init_std) {}

  void begin_unit(const std::string& name) { spec_->units.push_back({.name = name, .params = {}}); }

  // A weight [rows, columns]; tensor parallelism splits `parallel_dim`.
  ParamSpec& matrix(const std::string& name, std::int64_t rows, std::int64_t columns, int parallel_dim) {
    ParamSpec& param = add(name, {rows, columns}, Init::kNormal);
    param.tensor_parallel_dim = parallel_dim;
    return param;
  }
  void norm(const std::string& name, std::int64_t size) { add(name, {size}, Init::kOnes); }

 private:
  ParamSpec& add(const std::string& name, std::vector<std::int64_t> shape, Init init) {
    spec_->units.back().params.push_back(static_cast<int>(spec_->params.size()));
    ParamSpec param;
    param.name = name;
    param.shape = std::move(shape);
    param.unit = static_cast<int>(spec_->units.size()) - 1;
    param.init = init;
    param.init_std = init_std_;
    return spec_->params.emplace_back(std::move(param));
  }

  ModelSpec* spec_;
  double init_std_;
};

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
  INTARSIA_INVARIANT(config.model_type == "llama", "llama_spec() was given a ", config.model_type);
  ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.max_positions = config.max_position_embeddings;

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
    build.matrix(name + ".self_attn.q_proj.weight", queries, hidden, 0);
    build.matrix(name + ".self_attn.k_proj.weight", keys, hidden, 0);
    build.matrix(name + ".self_attn.v_proj.weight", keys, hidden, 0);
    build.matrix(name + ".self_attn.o_proj.weight", hidden, queries, 1);
    build.matrix(name + ".mlp.gate_proj.weight", config.intermediate_size, hidden, 0);
    build.matrix(name + ".mlp.up_proj.weight", config.intermediate_size, hidden, 0);
    build.matrix(name + ".mlp.down_proj.weight", hidden, config.intermediate_size, 1);
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
