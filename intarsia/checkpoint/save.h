// Saving a checkpoint: all of it or none of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "intarsia/checkpoint/manifest.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/shard/engine.h"

namespace intarsia::checkpoint {

struct SaveRequest {
  std::string root;         // RUN/checkpoints; created if its parent exists
  Progress progress;        // `updates` is taken from the optimizer
  std::string config = {};  // the resolved configuration, JSON
  std::string model_config = {};
  std::map<std::string, std::string> versions = {};  // libtorch's is added
  int keep = 0;                                      // checkpoints that stay, the new one included; 0: all
};

struct Saved {
  std::string path;         // ROOT/step-N
  std::uint64_t bytes = 0;  // of all body files
};

// Writes ROOT/step-N: each rank its own shard of masters, moments and frozen weights, then rank 0 the manifest. They
// are written into ROOT/step-N.wip-NONCE, which one rename turns into the checkpoint: whoever comes after a crash finds
// the whole new checkpoint or none. A step that exists is replaced in the same manner. Then ROOT/latest names it, older
// ones are removed as `keep` asks, and what crashed saves left behind is cleared away.
//
// Collective over the engine's axis, between two steps; it blocks until the bytes are on stable storage. Weights and
// moments are not changed. `root` may be spelled differently by each rank but must be one folder.
// Memory: lists of tensors only. Jobs: several may save into one root at a time.
// Errors: kIo on every rank, naming the first rank that failed, its path and reason; older checkpoints are as before,
// and training may go on.
Saved save_checkpoint(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer);

}  // namespace intarsia::checkpoint
