#include "intarsia/checkpoint/save.h"

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/save_phases.h"

namespace intarsia::checkpoint {

// Runs `local` on all ranks and goes to the next phase. False: the checkpoint is there, but what was to follow failed.
bool advance_together(comm::Communicator& axis, SavePhases& phases, const std::function<void()>& local) {
  try {
    all_or_none(axis, phases.what(), local);
  } catch (const Error& error) {
    if (!phases.is_committed() || error.kind() == ErrorKind::kComm) throw;
    if (axis.rank() == 0)
      log_warning(concat(phases.saved().path, " is saved, but older checkpoints were not removed: ", error.what()));
    return false;
  }
  phases.advance();
  return true;
}

Saved save_checkpoint(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer) {
  SavePhases phases(request, engine, optimizer);
  while (!phases.done())
    if (!advance_together(engine.world(), phases, [&] { phases.run_local(); })) break;
  return phases.saved();
}

}  // namespace intarsia::checkpoint
