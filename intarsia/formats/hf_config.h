// config.json of a Hugging Face model directory: what the model's arithmetic depends on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

enum class RopeType { kDefault, kLlama3 };

// How rotary frequencies are changed for longer contexts; all but `type` are used by kLlama3 only.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 0;

  bool operator==(const RopeScaling&) const = default;
};

// A Llama. Every field that read_hf_config() does not find has transformers' default, written here.
struct HfConfig {
  std::string model_type = "llama";
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // default: num_attention_heads
  std::int64_t head_dim = 0;             // default: hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;  // standard deviation of initial weights
  DType dtype = DType::kF32;        // of the stored weights, as the config says; the files themselves decide
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  // one number, several, or none
  std::optional<std::int64_t> pad_token_id;

  bool operator==(const HfConfig&) const = default;
};

// Reads `directory`/config.json, in the spelling of transformers 4 (torch_dtype, rope_theta, rope_scaling) or 5 (dtype,
// rope_parameters). A key that would change results and is not honoured is refused by name, as is an unknown key.
// All problems are in one error: kIo, kFormat, kUnsupported.
HfConfig read_hf_config(const std::string& directory);

// The same for a text; `path` is for messages.
HfConfig parse_hf_config(const std::string& text, const std::string& path);

// config.json for `config`, in the form of transformers 4 with both dtype keys, which 4 and 5 load.
std::string hf_config_text(const HfConfig& config);

// Writes hf_config_text() to `directory`/config.json, atomically. Errors: kIo.
void write_hf_config(const std::string& directory, const HfConfig& config);

// The head_dim / 2 inverse frequencies of rotary position embedding, scaled as the config says; element j turns the
// pair (j, j + head_dim / 2) of a head by position * frequency. fp32 arithmetic, in transformers' order.
// Source: RoFormer (arXiv 2104.09864), section 3.2; Llama 3.1's scaling by wavelength.
std::vector<float> rope_inverse_frequencies(const HfConfig& config);

}  // namespace intarsia::formats
