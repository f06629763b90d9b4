// The training loop of one rank: from a job to a finished run directory.
#pragma once

#include "intarsia/comm/communicator.h"
#include "intarsia/train/job.h"

namespace intarsia::train {

enum class RunEnd { kDone, kStopped };

// Trains job.plan.steps steps, resuming RUN's newest complete checkpoint unless told otherwise, with metrics,
// evaluation, checkpoints, plot and, at the end, a Hugging Face directory RUN/model. A stop signal on any rank saves at
// the step's border and ends all ranks alike.
// Collective: all ranks of `axis`. Errors: those of its parts; kNumeric after max_bad_steps steps in a row whose loss
// or gradient was not finite.
RunEnd run_job(const TrainJob& job, comm::Communicator& axis);

}  // namespace intarsia::train
