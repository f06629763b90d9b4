#include "intarsia/plan/time/replay_time.h"

#include <algorithm>
#include <vector>

#include "intarsia/plan/time/cost.h"

namespace intarsia::plan {
namespace {

// The rates that count for one rank: those of a rank alone on its host, where it is.
DeviceSpec device_of(const ClusterSpec& cluster, int local_ranks) {
  DeviceSpec device = cluster.device;
  if (local_ranks > 1) return device;
  for (double& rate : device.peak_flops) rate *= device.alone_matrix;
  for (double& rate : device.pass_bandwidth) rate *= device.alone_memory;
  device.memory_bandwidth *= device.alone_memory;
  device.update_bandwidth *= device.alone_memory;
  return device;
}

class Player {
 public:
  Player(const StepReplay& replay, const RunPlan& plan, const ClusterSpec& cluster, int local_ranks)
      : replay_(replay),
        plan_(plan),
        cluster_(cluster),
        device_(device_of(cluster, local_ranks)),
        type_(matrix_type(plan.compute_dtype)),
        local_ranks_(local_ranks),
        gathered_(plan.model.units.size(), 0) {}

  StepSeconds play() {
    int micro = 0;
    double begin = 0;
    const auto close = [&] {  // the micro-step's last reduction lands; later ones are like the second
      const double end = std::max(rank_, reduced_);
      rank_ = link_ = reduced_ = end;
      total_ += times_ * (end - begin);
      begin = end;
      std::ranges::fill(gathered_, 0);
    };
    for (const Action& action : replay_.actions) {
      if (action.micro != micro) close();
      micro = action.micro;
      times_ = micro == 1 ? static_cast<double>(plan_.accumulation - 1) : 1;
      take(action);
    }
    close();
    out_.traffic = std::max(0.0, total_ - computed_);
    out_.hidden = std::max(0.0, moved_ - out_.traffic);
    out_.traffic += slowed_ * (moved_ > 0 ? out_.hidden / moved_ : 0);
    return out_;
  }

 private:
  void take(const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kLoss:
      case ActionKind::kBackward:
        if (action.unit >= 0) rank_ = std::max(rank_, gathered_[static_cast<std::size_t>(action.unit)]);
        compute(work_seconds(action));
        break;
      case ActionKind::kAllGather:
        link(action, Collective::kAllGather);
        if (action.unit >= 0) gathered_[static_cast<std::size_t>(action.unit)] = link_;
        if (!plan_.overlap || action.micro == kAfterWindow) rank_ = link_;
        break;
      case ActionKind::kReduceScatter:
        rank_ = std::max(rank_, reduced_);  // one at a time
        link(action, Collective::kReduceScatter);
        reduced_ = link_;
        if (!plan_.overlap || action.micro == kAfterWindow) rank_ = link_;
        break;
      case ActionKind::kBarrier:
        rank_ += 2 * cluster_.intra.latency;
        break;
      case ActionKind::kUpdate: {
        const double rate = device_.update_bandwidth > 0 ? device_.update_bandwidth
                                                         : device_.memory_bandwidth * device_.memory_efficiency;
        out_.update += static_cast<double>(action.bytes) / rate;
        compute(static_cast<double>(action.bytes) / rate);
        break;
      }
    }
  }

  void compute(double seconds) {
    rank_ += seconds;
    computed_ += times_ * seconds;
  }

  void link(const Action& action, Collective kind) {
    const Grid grid = plan_.grid();
    const bool shard = action.axis == ActionAxis::kShard;
    const double ranks = shard ? grid.shards : grid.replicas;
    const double local = shard ? local_ranks_ : std::max(1, local_ranks_ / grid.shards);
    const AxisShape axis{.ranks = ranks, .per_host = std::min(ranks, local)};
    const double seconds = axis_seconds(cluster_, axis, kind, static_cast<double>(action.bytes));
    link_ = std::max(rank_, link_) + seconds;
    moved_ += times_ * seconds;
    if (axis.ranks <= axis.per_host) slowed_ += times_ * seconds * device_.contention;
  }

  double work_seconds(const Action& action) {
    const auto type = static_cast<std::size_t>(type_);
    double seconds = 0;
    const auto add = [&](double& part, double more) {
      part += times_ * more;
      seconds += more;
    };
    for (std::size_t i = action.work_begin; i < action.work_end; ++i) {
      const Work& work = replay_.work[i];
      add(out_.dispatch, device_.operation_seconds);
      switch (work.kind) {
        case Work::Kind::kMatmul:
          add(out_.matrix, matrix_seconds(device_, type_, work.flops));
          break;
        case Work::Kind::kAttention:
          add(out_.attention, work.flops / (device_.peak_flops[type] * device_.attention_efficiency));
          break;
        case Work::Kind::kElementwise:
          add(out_.elementwise, device_.pass_bandwidth[type] > 0 ? work.bytes / device_.pass_bandwidth[type]
                                                                 : memory_seconds(device_, work.bytes));
      }
      if (work.kind != Work::Kind::kElementwise) out_.flops += times_ * work.flops;
    }
    return seconds;
  }

  const StepReplay& replay_;
  const RunPlan& plan_;
  const ClusterSpec& cluster_;
  const DeviceSpec device_;
  MatrixType type_;
  int local_ranks_;
  std::vector<double> gathered_;              // by unit: when its gather has ended
  double rank_ = 0, link_ = 0, reduced_ = 0;  // clocks; when the reduction under way ends
  double times_ = 1;
  double total_ = 0, computed_ = 0, moved_ = 0, slowed_ = 0;
  StepSeconds out_;
};

}  // namespace

StepSeconds step_seconds(const StepReplay& replay, const RunPlan& plan, const ClusterSpec& cluster, int local_ranks) {
  return Player(replay, plan, cluster, local_ranks).play();
}

WorkSum sum_work(const StepReplay& replay, const RunPlan& plan) {
  WorkSum sum;
  for (const Action& action : replay.actions) {
    const double times = action.micro == 1 ? static_cast<double>(plan.accumulation - 1) : 1;
    for (std::size_t i = action.work_begin; i < action.work_end; ++i) {
      const Work& work = replay.work[i];
      sum.operations += times;
      sum.products += work.kind == Work::Kind::kMatmul ? times : 0;
      sum.matrix_flops += work.kind == Work::Kind::kMatmul ? times * work.flops : 0;
      sum.attention_flops += work.kind == Work::Kind::kAttention ? times * work.flops : 0;
      sum.pass_bytes += work.kind == Work::Kind::kElementwise ? times * work.bytes : 0;
    }
  }
  return sum;
}

}  // namespace intarsia::plan
