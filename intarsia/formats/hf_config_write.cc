#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/formats/hf_config.h"
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

}  // namespace

std::string hf_config_text(const HfConfig& config) {
  Json json;
  json["architectures"] = {"LlamaForCausalLM"};
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
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["mlp_bias"] = false;
  json["pretraining_tp"] = 1;
  json["rope_theta"] = config.rope_theta;
  const RopeScaling& rope = config.rope_scaling;
  if (rope.type == RopeType::kLlama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rope.factor},
                            {"low_freq_factor", rope.low_freq_factor},
                            {"high_freq_factor", rope.high_freq_factor},
                            {"original_max_position_embeddings", rope.original_max_position_embeddings}};
  } else {
    json["rope_scaling"] = nullptr;
  }
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
