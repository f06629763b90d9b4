// Collects what is wrong with a set of tensors, to tell all of it in one error. Internal to formats.
#pragma once

#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {

class ProblemList {
 public:
  template <typename... Parts>
  void add(const Parts&... parts) {
    texts_.push_back(concat(parts...));
  }

  // Throws "SUBJECT: a; b; ..." when anything was added.
  void throw_if_any(ErrorKind kind, const std::string& subject) const {
    if (!texts_.empty()) fail(kind, subject, ": ", join(texts_, "; "));
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace intarsia::formats
