// config.json of GPT-2.
#include "intarsia/base/text.h"
#include "intarsia/formats/hf_config_read.h"

namespace intarsia::formats {

void read_gpt2(Fields* fields, HfConfig* config, std::vector<Problem>* problems) {
  fields->need("vocab_size", &config->vocab_size);
  fields->need("n_embd", &config->hidden_size);
  fields->need("n_layer", &config->num_hidden_layers);
  fields->need("n_head", &config->num_attention_heads);
  config->max_position_embeddings = fields->integer("n_positions", 1).value_or(1024);
  config->intermediate_size = fields->integer("n_inner", 1).value_or(4 * config->hidden_size);
  config->num_key_value_heads = config->num_attention_heads;
  if (config->num_attention_heads > 0 && config->hidden_size > 0) {
    if (config->hidden_size % config->num_attention_heads != 0)
      problems->push_back(
          {ErrorKind::kFormat, concat("\"n_embd\" ", config->hidden_size, " must be a multiple of \"n_head\" ",
                                      config->num_attention_heads)});
    config->head_dim = config->hidden_size / config->num_attention_heads;
  }
  config->norm_eps = fields->positive("layer_norm_epsilon").value_or(1e-5);
  config->qkv_bias = config->output_bias = config->mlp_bias = true;
  config->tie_word_embeddings = fields->boolean("tie_word_embeddings").value_or(true);
  config->tensor_prefix = "transformer.";
  fields->must_be("activation_function", "gelu_new");
  fields->must_be("scale_attn_weights", true);
  fields->must_be_off("scale_attn_by_inverse_layer_idx");
  fields->must_be_off("reorder_and_upcast_attn");
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) read_dropout(fields, key, 0.1, config);
  check_architecture(fields, "GPT2LMHeadModel");
  // n_ctx is an older name of n_positions that nothing reads; summary_* belong to a head that is not here.
  for (const char* key : {"n_ctx", "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                          "summary_first_dropout"})
    fields->ignore(key);
}

}  // namespace intarsia::formats
