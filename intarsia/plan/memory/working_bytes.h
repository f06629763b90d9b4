// Memory that a run takes beside its states and its model's operations: of updates, of checkpoints.
#pragma once

#include <cstdint>

#include "intarsia/plan/run_plan.h"

namespace intarsia::plan {

// Bytes that an update takes and gives back, of the rank that takes most: Muon and Adafactor bring a matrix together at
// its owner (optim/matrix_exchange.h), LAMB and Adafactor exchange sums of blocks (optim/param_sums.h). Others: none.
std::int64_t optimizer_working_bytes(const RunPlan& plan);

// Bytes that the rank with the largest shard writes to a checkpoint, and copies when that happens in the background
// (checkpoint::BackgroundSaver).
std::int64_t snapshot_bytes(const RunPlan& plan);

}  // namespace intarsia::plan
