// The ModelSpec of Llama, and of the families that are Llama with other settings, from their config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/model_spec.h"

namespace intarsia::plan {

// Parameters have Hugging Face's names and shapes (linear weights are [out, in]). Units, in forward order:
// "model.embed_tokens"; "model.layers.i"; "head", which has model.norm.weight and, unless tied, lm_head.weight. Tied,
// the embedding has two uses and the name lm_head.weight beside its own.
// Biases and norms of heads are there where the config has them.
// Matrices start normal with initializer_range, biases as zeros, norms as ones.
ModelSpec llama_spec(const formats::HfConfig& config);

// Models that need no files, by name: shapes for trying and measuring, with random weights. The caller may change
// vocab_size. Nothing for an unknown name.
std::optional<formats::HfConfig> preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace intarsia::plan
