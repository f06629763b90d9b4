// Pipeline schedules as data: for each rank of the pipeline, what it computes, in order.
#pragma once

#include <string>
#include <vector>

namespace intarsia::plan {

enum class PipelineSchedule { kGpipe, kOneFOneB, kInterleaved, kZeroBubbleH1, kZeroBubbleV };

// "gpipe", "1f1b", "interleaved", "zb-h1", "zbv".
const char* schedule_name(PipelineSchedule schedule);
// Errors: kUsage with the names.
PipelineSchedule schedule_of_name(const std::string& name);

enum class PipelineOp { kForward, kBackward, kInputGrad, kWeightGrad };  // kBackward is both halves in one

struct PipelineAction {
  PipelineOp op = PipelineOp::kForward;
  int micro = 0;
  int chunk = 0;  // of this rank; its place among all: place_of_chunk
  bool operator==(const PipelineAction&) const = default;
};

struct PipelinePlan {
  PipelineSchedule schedule = PipelineSchedule::kOneFOneB;
  int ranks = 1;
  int chunks = 1;  // of each rank
  int micro_batches = 1;
  std::vector<std::vector<PipelineAction>> actions;  // by rank

  // Position of a rank's chunk in the model, 0 to ranks * chunks - 1: loops, or with kZeroBubbleV down and up again.
  int place_of_chunk(int rank, int chunk) const;
  // The other way: rank and chunk of a position.
  std::pair<int, int> owner_of_place(int place) const;
};

// Writes the lists. `chunks` counts for kInterleaved only; kZeroBubbleV has two.
// Errors: kConfig when the schedule cannot be: interleaved needs micro_batches to be a multiple of ranks, ZBV at least
// 2 ranks - 1 of them.
// Source: GPipe (arXiv 1811.06965); PipeDream-Flush and interleaving, Narayanan et al. (arXiv 2104.04473), section 2.2;
// zero bubble, Qi et al. (arXiv 2401.10241), ZB-H1; controllable memory, Qi et al. (arXiv 2405.15362), ZBV.
PipelinePlan make_pipeline(PipelineSchedule schedule, int ranks, int micro_batches, int chunks = 1);

}  // namespace intarsia::plan
