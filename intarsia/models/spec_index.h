// Finds a model's parameters in its ModelSpec. Internal to models.
#pragma once

#include <string>

#include "intarsia/base/error.h"
#include "intarsia/plan/model_spec.h"

namespace intarsia::models {

inline int param_of(const plan::ModelSpec& spec, const std::string& name) {
  const std::optional<int> index = spec.find(name);
  INTARSIA_INVARIANT(index.has_value(), "the model spec has no ", name);
  return *index;
}

inline constexpr int kNoParam = -1;
inline int param_or_none(const plan::ModelSpec& spec, const std::string& name) {
  return spec.find(name).value_or(kNoParam);
}

inline int unit_of(const plan::ModelSpec& spec, int index) { return spec.params[static_cast<std::size_t>(index)].unit; }

}  // namespace intarsia::models
