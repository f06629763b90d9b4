#include "intarsia/plan/arch/gpt2.h"

#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/plan/arch/spec_builder.h"

namespace intarsia::plan {

ModelSpec gpt2_spec(const formats::HfConfig& config) {
  INTARSIA_INVARIANT(config.model_type == "gpt2", "gpt2_spec() was given a ", config.model_type);
  ModelSpec spec;
  spec.family = "gpt2";
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.max_positions = config.longest_sequence();

  const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
  const double residual_std = config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  const std::string& prefix = config.tensor_prefix;
  SpecBuilder build(&spec, config.initializer_range);
  const auto layer_norm = [&](const std::string& name) {
    build.norm(name + ".weight", hidden);
    build.bias(name + ".bias", hidden, false);
  };
  build.begin_unit(prefix + "wte");
  ParamSpec& embedding = build.matrix(prefix + "wte.weight", config.vocab_size, hidden, 0);
  if (config.tie_word_embeddings) {
    embedding.uses = 2;
    embedding.tied_names = {"lm_head.weight"};
  }
  build.matrix(prefix + "wpe.weight", config.max_position_embeddings, hidden, 1);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string name = concat(prefix, "h.", layer);
    build.begin_unit(name);
    layer_norm(name + ".ln_1");
    build.matrix(name + ".attn.c_attn.weight", hidden, 3 * hidden, 1);
    build.bias(name + ".attn.c_attn.bias", 3 * hidden, true);
    build.matrix(name + ".attn.c_proj.weight", hidden, hidden, 0).init_std = residual_std;
    build.bias(name + ".attn.c_proj.bias", hidden, false);
    layer_norm(name + ".ln_2");
    build.matrix(name + ".mlp.c_fc.weight", hidden, ffn, 1);
    build.bias(name + ".mlp.c_fc.bias", ffn, true);
    build.matrix(name + ".mlp.c_proj.weight", ffn, hidden, 0).init_std = residual_std;
    build.bias(name + ".mlp.c_proj.bias", hidden, false);
  }
  build.begin_unit("head");
  layer_norm(prefix + "ln_f");
  if (!config.tie_word_embeddings) build.matrix("lm_head.weight", config.vocab_size, hidden, 0);
  return spec;
}

}  // namespace intarsia::plan
