// What one rank holds over a training step, before anything is allocated: the engine's states, slots and buffers, and
// the model's own operations, replayed with ghosts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/memory/ghost.h"
#include "intarsia/plan/memory/ledger.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::plan {

// One thing that a rank does in a step, in order. The engine does the same (tests/plan compares the collectives with
// those that the recorder of comm saw).
enum class ActionKind { kForward, kLoss, kBackward, kAllGather, kReduceScatter, kBarrier, kUpdate };
std::string_view action_name(ActionKind kind);

inline constexpr int kAfterWindow = -1;

// Whose collective it is: the ranks of a shard group, or those with the same shard in each group (plan::Grid).
enum class ActionAxis { kShard, kReplicate };

struct Action {
  ActionKind kind = ActionKind::kForward;
  int unit = -1;           // index into ModelSpec::units; -1: none
  int micro = 0;           // micro-step
  std::int64_t bytes = 0;  // of a collective: the tensor that holds all ranks' pieces; of an update: memory touched
  ActionAxis axis = ActionAxis::kShard;
  std::size_t work_begin = 0, work_end = 0;  // of a computation: range of StepReplay::work
};

struct StepReplay {
  std::vector<Moment> timeline;  // the fullest moment of each unit's forward and backward, in order
  Moment peak;                   // the fullest of all
  Moment states;                 // what is held between steps
  std::int64_t load_peak = 0;    // bytes while weights are read, before the first step
  std::int64_t export_peak = 0;  // bytes while the result is written, after the last one
  // One optimizer update. Of more than two micro-steps the first two are replayed: all later ones are like the second.
  std::vector<Action> actions;
  std::vector<Work> work;
  // Highest of all phases.
  std::int64_t peak_bytes() const;
};

// What of a run is not in its RunPlan.
struct ReplayOptions {
  bool isolated = false;         // samples hold several documents, none of which sees another
  bool adapters_drop = false;    // adapters have dropout
  bool background_save = false;  // checkpoints are written from a copy, which stays from the first one on
};

// Replays one update of `plan`. `config` must be the model of plan.model. With mapped parameters the host's one copy is
// divided among its ranks, as the meter does. Source: ZeRO (arXiv 1910.02054), sections 3 and 5; docs/plan.md.
StepReplay replay_step(const RunPlan& plan, const formats::HfConfig& config, const ReplayOptions& options = {});

}  // namespace intarsia::plan
