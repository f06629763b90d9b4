// Where the time of steps goes: spans of one rank's phases, units and collectives; tables and traces of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/comm/data_axes.h"
#include "intarsia/comm/timed.h"
#include "intarsia/nn/unit_events.h"
#include "intarsia/plan/memory/rank_memory.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::train {

struct Span {
  enum class Kind { kPhase, kForward, kBackward, kCollective };
  Kind kind = Kind::kPhase;
  std::string name;           // of the phase, the unit, or the operation and its unit
  int unit = -1;              // of kForward and kBackward
  double begin = 0, end = 0;  // comm::steady_seconds
  double waited = 0;          // of a collective: not hidden
  std::int64_t bytes = 0;     // of a collective
  int ranks = 1;
  comm::Op op = comm::Op::kBarrier;

  double seconds() const { return end - begin; }
};

// Watches the steps of one rank: train_step tells it the phases, the model (through watch()) the units, the
// communicators (through collective()) their operations. Memory: about 150 bytes a span, kept until clear().
// Threads: the rank's own. A second run of a recomputed block is part of its backward.
class StepProfile final : public nn::UnitEvents {
 public:
  explicit StepProfile(const plan::RunPlan& plan) : plan_(plan) {}

  // The phase under way ends and `name` begins.
  void phase(const char* name);
  // The last phase ends.
  void end_step();
  // What the model is given in place of `engine`.
  nn::UnitEvents* watch(nn::UnitEvents& engine);
  void collective(const comm::TimedOp& op);

  const std::vector<Span>& spans() const { return spans_; }
  // Steps ended since the last clear().
  int steps() const { return steps_; }
  // Seconds of recomputation in these steps.
  double recompute_seconds() const { return recomputed_; }
  void clear();

  void pre_forward(int unit) override;
  void post_forward(int unit, bool needs_backward) override;
  void pre_backward(int unit) override;
  void post_backward(int unit) override;

 private:
  void open(Span::Kind kind, int unit);
  void close(Span::Kind kind, int unit);

  const plan::RunPlan& plan_;
  nn::UnitEvents* engine_ = nullptr;
  std::vector<Span> spans_;
  std::vector<Span> open_units_;
  Span phase_;
  bool in_phase_ = false;
  int steps_ = 0;
  double recomputed_before_ = 0, recomputed_ = 0;  // nn::recompute_time of the rank's thread
};

// The axes of a rank, whose operations a profile hears of.
class WatchedAxes {
 public:
  // `profile` null: the axes as they are. Both must outlive it.
  WatchedAxes(const comm::DataAxes& axes, StepProfile* profile);
  WatchedAxes(const WatchedAxes&) = delete;
  WatchedAxes& operator=(const WatchedAxes&) = delete;
  comm::DataAxes axes();

 private:
  comm::DataAxes inner_;
  std::optional<comm::TimedCommunicator> world_, shard_, replicate_;  // shard_ empty: the world is the shard group
};

// Collectives by operation, size and ranks: count, seconds, bytes/s.
class CollectiveTotals {
 public:
  // `ops`: the names that count; empty: all.
  explicit CollectiveTotals(std::vector<std::string> ops = {}) : ops_(std::move(ops)) {}
  void add(const Span& span);
  bool counts(const Span& span) const;
  // A table; bytes/s as the algorithm and as a link sees them. Empty: none were added.
  std::string text() const;

 private:
  struct Row {
    comm::Op op;
    std::int64_t bytes = 0;
    int ranks = 1;
    std::int64_t count = 0;
    double seconds = 0, waited = 0;
  };
  std::vector<std::string> ops_;
  std::vector<Row> rows_;
};

// "forward 12.3, backward 25.1, exchange 0.4, norm 0.2, update 3.0 ms": means over the profile's steps.
std::string phases_line(const StepProfile& profile);

// Phases with their shares, units with seconds, operations (of `replay`, 1e9) and rates, collectives with bytes and
// what of them was waited for; means over the profile's steps. `units`: lines for units, the slowest first; 0: all.
std::string profile_text(const StepProfile& profile, const plan::RunPlan& plan, const plan::StepReplay& replay,
                         std::size_t units = 0);

// Trace events of all ranks, as chrome://tracing and Perfetto read them: a process a rank, its phases, its units and
// its collectives in three rows; microseconds from the first span on.
std::string trace_json(const std::vector<const StepProfile*>& ranks);

}  // namespace intarsia::train
