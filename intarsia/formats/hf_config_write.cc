#include <algorithm>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/formats/hf_config_read.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::ordered_json;

std::string torch_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kF64:
      return "float64";
    default:
      fail(ErrorKind::kUnsupported, "a model's weights cannot be ", safetensors_name(dtype));
  }
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

double dropout_of(const HfConfig& config, const std::string& key) {
  const auto found = config.dropout.find(key);
  return found == config.dropout.end() ? 0.0 : found->second;
}

Json rope_scaling(const RopeScaling& rope) {
  switch (rope.type) {
    case RopeType::kDefault:
      return nullptr;
    case RopeType::kLinear:
      return {{"rope_type", "linear"}, {"type", "linear"}, {"factor", rope.factor}};
    case RopeType::kDynamic:
      return {{"rope_type", "dynamic"}, {"type", "dynamic"}, {"factor", rope.factor}};
    case RopeType::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", rope.factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings},
              {"attention_factor", rope.attention_factor},
              {"beta_fast", rope.beta_fast},
              {"beta_slow", rope.beta_slow},
              {"truncate", rope.truncate}};
    case RopeType::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings}};
  }
  return nullptr;
}

// max_window_layers for transformers before 4.53, which have no layer_types.
void add_chosen_windows(const HfConfig& config, Json* json) {
  const bool used = config.sliding_window > 0;
  (*json)["use_sliding_window"] = used;
  (*json)["sliding_window"] = used ? Json(config.sliding_window) : Json(nullptr);
  std::int64_t full = config.num_hidden_layers;
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool windowed = config.window_of(layer) > 0;
    if (windowed) full = std::min(full, layer);
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  (*json)["max_window_layers"] = full;
  (*json)["layer_types"] = types;
}

Json llama_json(const HfConfig& config, const LlamaFamily& family) {
  Json json;
  json["architectures"] = {family.class_name};
  json["model_type"] = config.model_type;
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["initializer_range"] = config.initializer_range;
  json["rms_norm_eps"] = config.norm_eps;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["attention_dropout"] = dropout_of(config, "attention_dropout");
  if (config.model_type == "llama") {
    json["mlp_bias"] = config.mlp_bias;
    json["pretraining_tp"] = 1;
  }
  if (config.model_type == "llama" || config.model_type == "qwen3") json["attention_bias"] = config.output_bias;
  if (config.model_type == "mistral")
    json["sliding_window"] = config.sliding_window > 0 ? Json(config.sliding_window) : Json(nullptr);
  if (config.model_type == "qwen2" || config.model_type == "qwen3") add_chosen_windows(config, &json);
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = rope_scaling(config.rope_scaling);
  return json;
}

Json gpt2_json(const HfConfig& config) {
  Json json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = config.vocab_size;
  json["n_positions"] = config.max_position_embeddings;
  json["n_embd"] = config.hidden_size;
  json["n_layer"] = config.num_hidden_layers;
  json["n_head"] = config.num_attention_heads;
  json["n_inner"] = config.intermediate_size == 4 * config.hidden_size ? Json(nullptr) : Json(config.intermediate_size);
  json["activation_function"] = "gelu_new";
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = dropout_of(config, key);
  json["layer_norm_epsilon"] = config.norm_eps;
  json["initializer_range"] = config.initializer_range;
  json["scale_attn_weights"] = true;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  return json;
}

}  // namespace

std::string hf_config_text(const HfConfig& config) {
  const LlamaFamily* family = find_llama_family(config.model_type);
  Json json = family != nullptr ? llama_json(config, *family) : gpt2_json(config);
  json["bos_token_id"] = or_null(config.bos_token_id);
  if (config.eos_token_ids.empty())
    json["eos_token_id"] = nullptr;
  else if (config.eos_token_ids.size() == 1)
    json["eos_token_id"] = config.eos_token_ids.front();
  else
    json["eos_token_id"] = config.eos_token_ids;
  json["pad_token_id"] = or_null(config.pad_token_id);
  json["torch_dtype"] = torch_dtype_name(config.dtype);
  json["dtype"] = torch_dtype_name(config.dtype);
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

void write_hf_config(const std::string& directory, const HfConfig& config) {
  io::write_file_atomic(directory + "/config.json", hf_config_text(config));
}

}  // namespace intarsia::formats
