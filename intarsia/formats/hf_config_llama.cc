// config.json of Llama and of the families that are Llama with other settings.
#include <algorithm>

#include "intarsia/base/text.h"
#include "intarsia/formats/hf_config_read.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::json;

void read_sizes(Fields* fields, const LlamaFamily& family, HfConfig* config, std::vector<Problem>* problems) {
  fields->need("vocab_size", &config->vocab_size);
  fields->need("hidden_size", &config->hidden_size);
  fields->need("intermediate_size", &config->intermediate_size);
  fields->need("num_hidden_layers", &config->num_hidden_layers);
  fields->need("num_attention_heads", &config->num_attention_heads);
  config->max_position_embeddings = fields->integer("max_position_embeddings", 1).value_or(family.max_positions);
  // null says as many as heads, in every family; an absent key what the family's class says.
  const bool absent = !fields->has("num_key_value_heads");
  config->num_key_value_heads =
      fields->integer("num_key_value_heads", 1)
          .value_or(absent && family.kv_heads > 0 ? family.kv_heads : config->num_attention_heads);
  const auto head_dim = fields->integer("head_dim", 1);
  if (config->num_attention_heads == 0 || config->hidden_size == 0) return;  // reported above
  const auto wrong = [&](auto... parts) { problems->push_back({ErrorKind::kFormat, concat(parts...)}); };
  const bool derived = !head_dim && family.head_dim == 0;
  if (derived && config->hidden_size % config->num_attention_heads != 0)
    wrong("without \"head_dim\", \"hidden_size\" ", config->hidden_size,
          " must be a multiple of \"num_attention_heads\" ", config->num_attention_heads);
  config->head_dim = head_dim.value_or(derived ? config->hidden_size / config->num_attention_heads : family.head_dim);
  if (config->head_dim % 2 != 0) wrong("the head size ", config->head_dim, " must be even (rotary embedding)");
  if (config->num_attention_heads % config->num_key_value_heads != 0)
    wrong("\"num_attention_heads\" ", config->num_attention_heads, " must be a multiple of \"num_key_value_heads\" ",
          config->num_key_value_heads);
}

// Qwen's list of layers, or all from max_window_layers on. Without use_sliding_window the other keys mean nothing.
void read_chosen_windows(Fields* fields, HfConfig* config) {
  const bool used = fields->boolean("use_sliding_window").value_or(false);
  const std::int64_t window = fields->has("sliding_window") ? fields->integer("sliding_window", 1).value_or(0) : 4096;
  const std::int64_t first = fields->integer("max_window_layers", 0).value_or(28);
  const auto layers = static_cast<std::size_t>(config->num_hidden_layers);
  std::vector<bool> windowed;
  const Json* types = fields->get("layer_types");
  if (types == nullptr) {
    for (std::size_t i = 0; i < layers; ++i) windowed.push_back(used && static_cast<std::int64_t>(i) >= first);
  } else {
    const auto known = [](const Json& type) { return type == "full_attention" || type == "sliding_attention"; };
    if (!types->is_array() || types->size() != layers || !std::ranges::all_of(*types, known)) {
      fields->bad_value("layer_types", *types,
                        concat("a list of ", layers, " texts, \"full_attention\" or \"sliding_attention\""));
      return;
    }
    for (const Json& type : *types) windowed.push_back(type == "sliding_attention");
  }
  if (std::ranges::find(windowed, true) == windowed.end()) return;
  if (!used || window == 0) {
    if (types != nullptr)
      fields->bad_value("layer_types", *types,
                        "without \"sliding_attention\", as there is no sliding window "
                        "(\"use_sliding_window\", \"sliding_window\")");
    return;
  }
  config->sliding_window = window;
  config->windowed_layers = windowed;
}

void read_windows(Fields* fields, HfConfig* config) {
  if (config->model_type == "qwen2" || config->model_type == "qwen3") return read_chosen_windows(fields, config);
  fields->must_be_off("use_sliding_window");
  for (const char* key : {"layer_types", "sliding_window"}) {
    if (config->model_type == "mistral" && std::string(key) == "sliding_window") continue;
    const Json* value = fields->get(key);
    if (value != nullptr && !(value->is_structured() && value->empty()))
      fields->unsupported(key, *value, "leave it out");
  }
  if (config->model_type != "mistral") return;
  // null says none; an absent key is transformers' default.
  config->sliding_window = fields->has("sliding_window") ? fields->integer("sliding_window", 1).value_or(0) : 4096;
  if (config->sliding_window > 0)
    config->windowed_layers.assign(static_cast<std::size_t>(config->num_hidden_layers), true);
}

void read_biases(Fields* fields, HfConfig* config) {
  if (config->model_type == "qwen2") {
    fields->ignore("attention_bias");  // its class has biases whatever this key says
    fields->must_be_off("use_mrope");
    config->qkv_bias = true;
  } else if (config->model_type == "mistral") {
    fields->must_be_off("attention_bias");
  } else {
    config->qkv_bias = config->output_bias = fields->boolean("attention_bias").value_or(false);
  }
  if (config->model_type == "llama")
    config->mlp_bias = fields->boolean("mlp_bias").value_or(false);
  else
    fields->must_be_off("mlp_bias");
  config->qk_norm = config->model_type == "qwen3";
}

}  // namespace

const std::vector<LlamaFamily>& llama_families() {
  static const std::vector<LlamaFamily> kFamilies{
      {"llama", "LlamaForCausalLM", 2048, 0, 0},
      {"mistral", "MistralForCausalLM", 131072, 8, 0},
      {"qwen2", "Qwen2ForCausalLM", 32768, 32, 0},
      {"qwen3", "Qwen3ForCausalLM", 32768, 32, 128},
  };
  return kFamilies;
}

const LlamaFamily* find_llama_family(const std::string& model_type) {
  for (const LlamaFamily& family : llama_families())
    if (model_type == family.model_type) return &family;
  return nullptr;
}

void read_llama(Fields* fields, HfConfig* config, std::vector<Problem>* problems) {
  const LlamaFamily* family = find_llama_family(config->model_type);
  INTARSIA_INVARIANT(family != nullptr, "read_llama() was given a ", config->model_type);
  read_sizes(fields, *family, config, problems);
  read_rope(fields, config, problems);
  read_windows(fields, config);
  read_biases(fields, config);
  fields->must_be_off("rope_interleaved");
  fields->must_be("hidden_act", "silu");
  fields->must_be("pretraining_tp", 1);
  fields->must_be("partial_rotary_factor", 1);
  read_dropout(fields, "attention_dropout", 0, config);
  check_architecture(fields, family->class_name);
  config->norm_eps = fields->positive("rms_norm_eps").value_or(config->norm_eps);
  config->tie_word_embeddings = fields->boolean("tie_word_embeddings").value_or(false);
}

}  // namespace intarsia::formats
