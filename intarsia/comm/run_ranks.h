// Several ranks in one process, for tests and examples.
#pragma once

#include <functional>

#include "intarsia/base/device.h"
#include "intarsia/comm/communicator.h"
#include "intarsia/comm/data_axes.h"
#include "intarsia/plan/placement.h"

namespace intarsia::comm {

struct RunRanksOptions {
  bool force_copy = false;               // as between hosts: allocate_shared gives null
  DeviceKind device = DeviceKind::kCpu;  // rank r computes on its r-th device
  double timeout_seconds = 20;           // deadline of each operation
};

// Runs fn on `ranks` threads at once, each with its own communicator of the threads backend and one intra-op thread,
// and returns when all have ended. If one throws, the others' operations throw too, and the first cause is rethrown.
void run_ranks(int ranks, const std::function<void(Communicator&)>& fn, const RunRanksOptions& options = {});

// The same for the axes of a grid.
void run_grid(const plan::Grid& grid, const std::function<void(const DataAxes&)>& fn,
              const RunRanksOptions& options = {});

}  // namespace intarsia::comm
