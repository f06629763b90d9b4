// adapter_config.json of a PEFT adapter directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace intarsia::formats {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";

// A LoRA adapter: its output is multiplied by `scale`.
struct AdapterConfig {
  std::int64_t r = 0;
  double alpha = 0;
  double scale = 0;                  // alpha / r, with "use_rslora" alpha / sqrt(r)
  double dropout = 0;                // "lora_dropout", that it was trained with (written, not read)
  std::vector<std::string> targets;  // empty when the file has a pattern: the weights themselves say which
  std::string base_model;            // "base_model_name_or_path", for messages only: nothing is opened by it
  bool transposed = false;           // "fan_in_fan_out": the base's weights are [in, out] (written, not read)
};

// Whether `directory` is an adapter and not a model.
bool is_adapter_directory(const std::string& directory);

// Reads DIRECTORY/adapter_config.json. What would change results and is not done (DoRA, other ranks or alphas by
// layer, biases, modules saved whole, ...) is refused by name, as is an unknown key with a value other than null, false
// or something empty. Errors: kIo; kFormat; kUnsupported, one for all.
AdapterConfig read_adapter_config(const std::string& directory);

// The text of an adapter_config.json as PEFT 0.21 loads it.
std::string adapter_config_text(const AdapterConfig& config);

}  // namespace intarsia::formats
