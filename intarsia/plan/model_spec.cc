#include "intarsia/plan/model_spec.h"

#include <algorithm>

namespace intarsia::plan {

std::int64_t ParamSpec::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::int64_t ModelSpec::numel() const {
  std::int64_t sum = 0;
  for (const ParamSpec& param : params) sum += param.numel();
  return sum;
}

std::optional<int> ModelSpec::find(const std::string& name) const {
  for (std::size_t i = 0; i < params.size(); ++i) {
    const ParamSpec& param = params[i];
    if (param.name == name || std::ranges::find(param.tied_names, name) != param.tied_names.end())
      return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace intarsia::plan
