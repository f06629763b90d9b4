// config.json of a Hugging Face model directory: what the model's arithmetic depends on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

enum class RopeType { kDefault, kLinear, kDynamic, kYarn, kLlama3 };

// How rotary frequencies are changed for longer contexts; `factor` is of all types but kDefault.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;
  double low_freq_factor = 1;                         // kLlama3
  double high_freq_factor = 4;                        // kLlama3
  std::int64_t original_max_position_embeddings = 0;  // kLlama3, kYarn
  double beta_fast = 32;                              // kYarn
  double beta_slow = 1;                               // kYarn
  double attention_factor = 1;                        // kYarn: cos and sin are multiplied with it
  bool truncate = true;                               // kYarn: the ramp's ends are whole numbers

  bool operator==(const RopeScaling&) const = default;
};

// A model: Llama, or a Llama with other settings (Mistral, Qwen2, Qwen3), or GPT-2, whose keys have the names of
// Llama's here. Every field that read_hf_config() does not find has transformers' default for the family.
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
  double norm_eps = 1e-6;  // of RMS norms, or of GPT-2's layer norms
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool qkv_bias = false;              // projections to queries, keys and values have biases
  bool output_bias = false;           // the projection after attention has one
  bool mlp_bias = false;              // the feed-forward's projections have them
  bool qk_norm = false;               // each head's query and key goes through an RMS norm
  std::int64_t sliding_window = 0;    // keys that a query of a windowed layer sees, its own among them; 0: no window
  std::vector<bool> windowed_layers;  // by layer; empty without a window
  std::map<std::string, double> dropout;  // probabilities above 0, by their keys; training with them is refused
  std::string tensor_prefix;  // GPT-2: what stands before "wte" in the weights' names, "transformer." or nothing
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;  // standard deviation of initial weights
  DType dtype = DType::kF32;        // of the stored weights, as the config says; the files themselves decide
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  // one number, several, or none
  std::optional<std::int64_t> pad_token_id;

  bool operator==(const HfConfig&) const = default;

  // Keys that a query of layer `layer` sees at most; 0: all before it.
  std::int64_t window_of(std::int64_t layer) const {
    return !windowed_layers.empty() && windowed_layers[static_cast<std::size_t>(layer)] ? sliding_window : 0;
  }
  // Longest sequence: max_position_embeddings, and with dynamic rope `factor` times as long.
  std::int64_t longest_sequence() const;
};

// "llama", "mistral", ...: the values of model_type that are known.
std::vector<std::string> known_model_types();

// Reads `directory`/config.json, in the spelling of transformers 4 (torch_dtype, rope_theta, rope_scaling) or 5 (dtype,
// rope_parameters). A key that would change results and is not honoured is refused by name, as is an unknown key.
// For GPT-2 the names of the weights are looked at, where there are weights, for tensor_prefix.
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
// `length`: of the sequence; kDynamic lowers the frequencies of one that is longer than max_position_embeddings.
// Source: RoFormer (arXiv 2104.09864), section 3.2; Llama 3.1's scaling by wavelength; YaRN (arXiv 2309.00071),
// section 3.2, which also has the dynamic scaling ("NTK-aware"); transformers, modeling_rope_utils.py.
std::vector<float> rope_inverse_frequencies(const HfConfig& config, std::int64_t length = 0);

}  // namespace intarsia::formats
