// The values in force as JSON, in the shape that `intarsia config show --json` prints. docs/config.md describes it.
#pragma once

#include <nlohmann/json.hpp>

#include "intarsia/config/resolve.h"

namespace intarsia::config {

// {"batch", "zero_stage", "precision", "optimizer", "scheduler", ..., "run"}. The scheduler's lr_at_update is plan's to
// add.
nlohmann::ordered_json effective_json(const Resolved& resolved);

// {"path", "line", "column", "value", "message", "suggestion", "file"} of each.
nlohmann::ordered_json problems_json(const std::vector<Problem>& problems);

// The DeepSpeed JSON that a run without a file amounts to: what train prints and writes as config.resolved.json.
nlohmann::ordered_json resolved_config_json(const Resolved& resolved);

}  // namespace intarsia::config
