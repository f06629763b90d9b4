#include "intarsia/plan/time/replay_time.h"

#include <algorithm>

#include "intarsia/plan/time/cost.h"

namespace intarsia::plan {

StepSeconds step_seconds(const StepReplay& replay, const RunPlan& plan, const ClusterSpec& cluster, int local_ranks) {
  const DeviceSpec& device = cluster.device;
  const MatrixType type = matrix_type(plan.compute_dtype);
  const AxisShape axis{.ranks = static_cast<double>(plan.ranks), .per_host = static_cast<double>(local_ranks)};
  StepSeconds out;
  for (const Action& action : replay.actions) {
    // All later micro-steps are like the second.
    const double times = action.micro == 1 ? static_cast<double>(plan.accumulation - 1) : 1;
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kLoss:
      case ActionKind::kBackward:
        for (std::size_t i = action.work_begin; i < action.work_end; ++i) {
          const Work& work = replay.work[i];
          if (work.kind == Work::Kind::kMatmul) {
            out.matrix += times * matrix_seconds(device, type, work.flops);
          } else if (work.kind == Work::Kind::kAttention) {
            out.attention +=
                times * work.flops / (device.peak_flops[static_cast<std::size_t>(type)] * device.attention_efficiency);
          } else {
            out.elementwise += times * memory_seconds(device, work.bytes);
          }
          if (work.kind != Work::Kind::kElementwise) out.flops += times * work.flops;
        }
        break;
      case ActionKind::kAllGather:
        out.traffic += times * axis_seconds(cluster, axis, Collective::kAllGather, static_cast<double>(action.bytes));
        break;
      case ActionKind::kReduceScatter:
        out.traffic +=
            times * axis_seconds(cluster, axis, Collective::kReduceScatter, static_cast<double>(action.bytes));
        break;
      case ActionKind::kBarrier:
        out.traffic += 2 * cluster.intra.latency;
        break;
      case ActionKind::kUpdate:
        out.update += memory_seconds(device, static_cast<double>(action.bytes));
        break;
    }
  }
  return out;
}

}  // namespace intarsia::plan
