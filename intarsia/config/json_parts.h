// Parts of the configuration as JSON that `config show` and config.resolved.json have in common. Internal to config.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "intarsia/config/train_config.h"

namespace intarsia::config {

// JSON text as a value; integral floats (5e8) become the integers they mean.
nlohmann::ordered_json json_of_text(const std::string& text);

// The parameters that the optimizer's type has, by the names of optimizer.params.
nlohmann::ordered_json optimizer_params_json(const OptimizerConfig& from);
nlohmann::ordered_json param_groups_json(const OptimizerConfig& from);
nlohmann::ordered_json lora_json(const LoraConfig& from);

// The settings of flags, by their keys in the section "intarsia".
nlohmann::ordered_json run_json(const TrainConfig& config);

}  // namespace intarsia::config
