// First pass over a DeepSpeed JSON: every key is known, of its type and in its range, or a problem.
#pragma once

#include "intarsia/config/draft.h"

namespace intarsia::config {

// Reads the file's tree into draft.cells under canonical paths, draft.sections, and the "intarsia" section into
// draft.asked; adds problems, and reports of keys without effect.
void read_deepspeed(const formats::JsonValue& root, Draft& draft);

}  // namespace intarsia::config
