// Where a run goes on: what to load, and whether the run may go on from it with its present settings.
#pragma once

#include <string>

#include "intarsia/checkpoint/manifest.h"
#include "intarsia/comm/communicator.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/console.h"
#include "intarsia/train/job.h"

namespace intarsia::train {

struct Resumed {
  checkpoint::Progress progress;  // of a run that begins: the seed only
  bool is_saved = false;          // as a checkpoint of this run's own format
};

// Loads what job.loop.resume names ("auto": the newest undamaged checkpoint in RUN, "never": none, or a path, also of a
// peer) into `assembly`, and tells on rank 0 what was taken and what passed over, and why. Collective over `axis`, the
// world. Errors: kConfig when the checkpoint's settings are not this run's (--resume-with-changes), or its reproducible
// mode has other logical micro-batches; those of checkpoint::load_newest, load_checkpoint and load_peer.
Resumed resume_run(const TrainJob& job, const std::string& run, comm::Communicator& axis, Assembly& assembly,
                   Console& console);

}  // namespace intarsia::train
