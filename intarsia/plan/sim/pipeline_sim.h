// Plays a pipeline's lists against the clock.
#pragma once

#include <vector>

#include "intarsia/plan/sim/pipeline_schedule.h"

namespace intarsia::plan {

// Seconds of one micro-batch through one chunk, alike for all chunks unless `last` differs.
struct PipelineTimes {
  double forward = 1;
  double input_grad = 1;  // the half of backward that the rank before waits for
  double weight_grad = 1;
  double send = 0;        // from chunk to chunk, each way; ranks compute meanwhile
  double last_extra = 0;  // head and loss: added to forward and twice to backward of the last chunk
};

struct PipelineEvent {
  PipelineAction action;
  double begin = 0, end = 0;
};

struct PipelineRun {
  double seconds = 0;                              // until the last rank is done
  std::vector<std::vector<PipelineEvent>> events;  // by rank
  std::vector<int> peak_in_flight;                 // chunks' activations a rank keeps at once, by rank
  double busy = 0;                                 // share of ranks x seconds that is computation
};

// Every action starts when its rank is free and its input has arrived. Activations of a chunk are kept from its forward
// to the end of its (whole) backward. Errors: kInternal when a list waits for itself.
PipelineRun run_pipeline(const PipelinePlan& plan, const PipelineTimes& times);

}  // namespace intarsia::plan
