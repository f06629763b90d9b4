// The training loop of one rank: from a job to a finished run directory.
#pragma once

#include "intarsia/comm/data_axes.h"
#include "intarsia/train/job.h"

namespace intarsia::train {

enum class RunEnd { kDone, kStopped };

// Trains job.plan.steps steps, resuming RUN's newest complete checkpoint unless told otherwise, with metrics,
// evaluation, checkpoints, plot and, at the end, a Hugging Face directory RUN/model. A stop signal on any rank saves at
// the step's border and ends all ranks alike.
// Collective: all ranks of `axes`. Errors: those of its parts; kNumeric after max_bad_steps steps in a row whose loss
// or gradient was not finite.
RunEnd run_job(const TrainJob& job, const comm::DataAxes& axes);

}  // namespace intarsia::train
