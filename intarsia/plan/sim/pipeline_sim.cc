#include "intarsia/plan/sim/pipeline_sim.h"

#include <algorithm>
#include <limits>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

constexpr double kNever = -1;

class Simulation {
 public:
  Simulation(const PipelinePlan& plan, const PipelineTimes& times)
      : plan_(plan),
        times_(times),
        places_(plan.ranks * plan.chunks),
        forward_done_(count(), kNever),
        backward_done_(count(), kNever),
        next_(static_cast<std::size_t>(plan.ranks), 0),
        free_at_(static_cast<std::size_t>(plan.ranks), 0),
        in_flight_(static_cast<std::size_t>(plan.ranks), 0) {
    run_.events.resize(static_cast<std::size_t>(plan.ranks));
    run_.peak_in_flight.resize(static_cast<std::size_t>(plan.ranks), 0);
  }

  PipelineRun run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < plan_.ranks; ++rank)
        while (advance(rank)) moved = true;
    }
    double work = 0;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      INTARSIA_INVARIANT(next_[r] == plan_.actions[r].size(), schedule_name(plan_.schedule), ": rank ", rank,
                         " waits for ever at action ", next_[r]);
      run_.seconds = std::max(run_.seconds, free_at_[r]);
      for (const PipelineEvent& event : run_.events[r]) work += event.end - event.begin;
    }
    run_.busy = work / (run_.seconds * plan_.ranks);
    return std::move(run_);
  }

 private:
  std::size_t count() const {
    return static_cast<std::size_t>(plan_.ranks) * static_cast<std::size_t>(plan_.chunks * plan_.micro_batches);
  }
  std::size_t at(int place, int micro) const {
    return static_cast<std::size_t>(place) * static_cast<std::size_t>(plan_.micro_batches) +
           static_cast<std::size_t>(micro);
  }

  // When the input of an action is there; kNever: not known yet.
  double ready(const PipelineAction& action, int place) const {
    if (action.op == PipelineOp::kForward) {
      if (place == 0) return 0;
      return arrived(forward_done_[at(place - 1, action.micro)], place - 1, place);
    }
    if (action.op == PipelineOp::kWeightGrad) return backward_done_[at(place, action.micro)];
    if (place == places_ - 1) return forward_done_[at(place, action.micro)];
    return arrived(backward_done_[at(place + 1, action.micro)], place + 1, place);
  }

  double arrived(double done, int from, int to) const {
    if (done == kNever) return kNever;
    const bool moves = plan_.owner_of_place(from).first != plan_.owner_of_place(to).first;
    return done + (moves ? times_.send : 0);
  }

  double duration(PipelineOp op, int place) const {
    const double extra = place == places_ - 1 ? times_.last_extra : 0;
    switch (op) {
      case PipelineOp::kForward:
        return times_.forward + extra;
      case PipelineOp::kBackward:
        return times_.input_grad + times_.weight_grad + 2 * extra;
      case PipelineOp::kInputGrad:
        return times_.input_grad + extra;
      case PipelineOp::kWeightGrad:
        break;
    }
    return times_.weight_grad + extra;
  }

  bool advance(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (next_[r] == plan_.actions[r].size()) return false;
    const PipelineAction& action = plan_.actions[r][next_[r]];
    const int place = plan_.place_of_chunk(rank, action.chunk);
    const double input = ready(action, place);
    if (input == kNever) return false;
    const double begin = std::max(free_at_[r], input), end = begin + duration(action.op, place);
    run_.events[r].push_back({action, begin, end});
    free_at_[r] = end;
    ++next_[r];
    if (action.op == PipelineOp::kForward) {
      forward_done_[at(place, action.micro)] = end;
      run_.peak_in_flight[r] = std::max(run_.peak_in_flight[r], ++in_flight_[r]);
    } else if (action.op != PipelineOp::kWeightGrad) {
      backward_done_[at(place, action.micro)] = end;
    }
    if (action.op == PipelineOp::kBackward || action.op == PipelineOp::kWeightGrad) --in_flight_[r];
    return true;
  }

  const PipelinePlan& plan_;
  const PipelineTimes& times_;
  int places_;
  std::vector<double> forward_done_, backward_done_;
  std::vector<std::size_t> next_;
  std::vector<double> free_at_;
  std::vector<int> in_flight_;
  PipelineRun run_;
};

}  // namespace

PipelineRun run_pipeline(const PipelinePlan& plan, const PipelineTimes& times) { return Simulation(plan, times).run(); }

}  // namespace intarsia::plan
