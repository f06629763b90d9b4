#include "intarsia/plan/run_plan.h"

namespace intarsia::plan {

std::int64_t RunPlan::loss_divisor() const {
  std::int64_t divisor = 1;
  while (divisor < micro_batch * seq_len) divisor *= 2;
  return divisor;
}

}  // namespace intarsia::plan
