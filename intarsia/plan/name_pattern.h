// Shell patterns over names of parameters.
#pragma once

#include <string>
#include <vector>

#include "intarsia/plan/model_spec.h"

namespace intarsia::plan {

// Whether `pattern` (*, ?, [...]; * crosses dots) matches the whole name of `param`, or one that is tied to it.
bool matches(const std::string& pattern, const ParamSpec& param);

// Marks what a pattern matches as frozen. Errors: kConfig when a pattern matches nothing, or nothing is left to train.
void freeze(const std::vector<std::string>& patterns, ModelSpec& model);

}  // namespace intarsia::plan
