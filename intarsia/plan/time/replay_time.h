// Seconds of one update of this program's own engine: its replayed actions and operations against a cluster's rates.
#pragma once

#include "intarsia/plan/memory/rank_memory.h"
#include "intarsia/plan/time/cluster.h"

namespace intarsia::plan {

struct StepSeconds {
  double matrix = 0, attention = 0, elementwise = 0;  // of all micro-steps
  double dispatch = 0;                                // ClusterSpec's operation_seconds of every operation
  double traffic = 0;                                 // that computation waits for, or that slows it down
  double hidden = 0;                                  // traffic behind computation; no part of the total
  double update = 0;
  double total() const { return matrix + attention + elementwise + dispatch + traffic + update; }
  double flops = 0;  // products and attention, as computed
};

// `local_ranks`: of the plan's ranks on one host; mapped parameters and reductions through shared memory cost what the
// cluster's intra link says. With plan.overlap a gather and a reduction go on while units are computed, as the engine
// lets them: the actions are played on two clocks, a rank's and its link's. Inside a host what is hidden takes the
// cluster's contention from the computation.
StepSeconds step_seconds(const StepReplay& replay, const RunPlan& plan, const ClusterSpec& cluster, int local_ranks);

// Work of the same kind, added up; what a bench fits rates to.
struct WorkSum {
  double matrix_flops = 0, attention_flops = 0, pass_bytes = 0;
  double products = 0, operations = 0;  // counts; products are among the operations
};
// Of all micro-steps of `plan`.
WorkSum sum_work(const StepReplay& replay, const RunPlan& plan);

}  // namespace intarsia::plan
