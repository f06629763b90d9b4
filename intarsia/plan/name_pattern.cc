#include "intarsia/plan/name_pattern.h"

#include <fnmatch.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::plan {

bool matches(const std::string& pattern, const ParamSpec& param) {
  const auto one = [&](const std::string& name) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
  return one(param.name) || std::ranges::any_of(param.tied_names, one);
}

void freeze(const std::vector<std::string>& patterns, ModelSpec& model) {
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (ParamSpec& param : model.params) {
      if (!matches(pattern, param)) continue;
      any = true;
      param.frozen = true;
    }
    INTARSIA_CHECK(kConfig, any, "--freeze ", printable(pattern), " matches no parameter; it is held against whole ",
                   "names such as ", model.params.empty() ? "" : model.params[model.params.size() / 2].name,
                   ", * stands for any part");
  }
  INTARSIA_CHECK(kConfig,
                 patterns.empty() || std::ranges::any_of(model.params, [](const auto& param) { return !param.frozen; }),
                 "--freeze ", join(patterns, " "), " leaves nothing to train");
}

}  // namespace intarsia::plan
