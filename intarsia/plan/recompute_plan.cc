#include "intarsia/plan/recompute_plan.h"

#include <algorithm>

#include "intarsia/base/error.h"

namespace intarsia::plan {

std::int64_t RecomputePlan::span(std::int64_t num_blocks) const {
  if (policy != Recompute::kFull || checkpoints == 0) return 1;
  return std::max<std::int64_t>(1, (num_blocks + checkpoints - 1) / checkpoints);
}

std::string describe(const RecomputePlan& plan) {
  switch (plan.policy) {
    case Recompute::kNone:
      return "";
    case Recompute::kFull:
      return plan.checkpoints == 0 ? "every block" : concat("blocks in ", plan.checkpoints, " pieces");
    case Recompute::kSelective:
      return "what lies between matrix products";
    case Recompute::kEveryK:
      break;
  }
  return plan.every == 1 ? "every block" : concat("one block in ", plan.every);
}

}  // namespace intarsia::plan
