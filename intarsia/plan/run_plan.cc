#include "intarsia/plan/run_plan.h"

#include "intarsia/base/error.h"

namespace intarsia::plan {

Placement placement_of_stage(int stage) {
  INTARSIA_CHECK(kConfig, stage >= 0 && stage <= 3, "zero_optimization.stage is ", stage, "; allowed: 0, 1, 2, 3");
  const auto rest = [stage](int from) { return stage >= from ? Rest::kSharded : Rest::kReplicated; };
  return {.params = rest(3), .grads = rest(2), .optimizer = rest(1)};
}

std::int64_t RunPlan::loss_divisor() const {
  std::int64_t divisor = 1;
  while (divisor < micro_batch * seq_len) divisor *= 2;
  return divisor;
}

}  // namespace intarsia::plan
