// Everything that `intarsia plan` says of a run, as data: made once, then written as text, JSON, CSV or pictures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "intarsia/plan/memory/limits.h"
#include "intarsia/plan/memory/rank_memory.h"
#include "intarsia/plan/search/search.h"
#include "intarsia/plan/sim/goodput.h"
#include "intarsia/plan/sim/pipeline_sim.h"
#include "intarsia/plan/time/replay_time.h"

namespace intarsia::plan {

struct StageMemory {
  int stage = 0;
  StepReplay replay;
  HostNeed need;
  bool fits = true;
  double saving = 0;  // share of stage 0's peak that is saved
  std::optional<StepSeconds> seconds;
};

struct PlanReport {
  std::string model;
  TransformerShape shape;
  RunPlan run;
  int local_ranks = 1;
  MemoryLimit limit;
  double margin = 0.05;
  std::vector<std::string> refusals;  // why `intarsia train` would not start this run
  std::string chosen;                 // what settle_open chose, in words; empty: nothing was open
  std::vector<StageMemory> stages;    // 0 to 3; the run's own is stages[run.stage]
  std::optional<ClusterSpec> cluster;
  std::optional<SearchSpace> space;
  std::optional<SearchResult> search;
  std::vector<std::string> ladder;  // the rule of thumb
  std::optional<PipelinePlan> pipeline;
  std::optional<PipelineRun> pipeline_run;
  std::optional<FailureModel> failures;  // of the best layout's devices, with the time that a checkpoint takes there

  const StageMemory& own() const { return stages[static_cast<std::size_t>(run.stage)]; }
};

struct ReportRequest {
  std::string model;
  formats::HfConfig config;
  RunPlan run;
  ReplayOptions replay;
  int local_ranks = 1;
  MemoryLimit limit;
  double margin = 0.05;
  std::vector<std::string> refusals;
  std::string chosen;
  std::optional<ClusterSpec> cluster;
  std::optional<SearchSpace> space;  // search, too
};

// Replays the run in all four stages and, with a cluster, times it; searches where a space is given.
PlanReport make_report(const ReportRequest& request);

// For a terminal; GiB, milliseconds.
std::string report_text(const PlanReport& report);
std::string report_json(const PlanReport& report);
// One line a stage and category: stage,category,bytes; then one a layout found.
std::string report_csv(const PlanReport& report);

}  // namespace intarsia::plan
