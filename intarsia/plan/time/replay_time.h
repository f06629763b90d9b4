// Seconds of one update of this program's own engine: its replayed actions and operations against a cluster's rates.
#pragma once

#include "intarsia/plan/memory/rank_memory.h"
#include "intarsia/plan/time/cluster.h"

namespace intarsia::plan {

struct StepSeconds {
  double matrix = 0, attention = 0, elementwise = 0;  // of all micro-steps
  double traffic = 0;                                 // nothing of it is hidden today
  double update = 0;
  double total() const { return matrix + attention + elementwise + traffic + update; }
  double flops = 0;  // products and attention, as computed
};

// `local_ranks`: of the plan's ranks on one host; mapped parameters and reductions through shared memory cost what the
// cluster's intra link says.
StepSeconds step_seconds(const StepReplay& replay, const RunPlan& plan, const ClusterSpec& cluster, int local_ranks);

}  // namespace intarsia::plan
