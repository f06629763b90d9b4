// What a configuration needs to know of a Hugging Face model directory.
#pragma once

#include <string>

#include "intarsia/config/resolve.h"

namespace intarsia::config {

// hidden_size (or the largest of hidden_sizes, or n_embd) of DIR/config.json, also inside text_config. Nothing where
// the file is missing or says nothing: whoever loads the model reports that.
ModelFacts read_model_facts(const std::string& directory);

}  // namespace intarsia::config
