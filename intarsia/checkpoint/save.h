// Saving a checkpoint: all of it or none of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
  std::int64_t keep_every = 0;                       // besides, those of steps that are multiples of it; 0: none
};

struct Saved {
  std::string path;         // ROOT/step-N
  std::uint64_t bytes = 0;  // of all body files
};

// Writes ROOT/step-N: each rank its own shard of masters, moments and frozen weights, then rank 0 the manifest. They
// are written into ROOT/step-N.wip-NONCE, which one rename turns into the checkpoint: whoever comes after a crash finds
// the whole new checkpoint or none. A step that exists is replaced in the same manner. Then ROOT/latest names it, and
// what crashed saves left behind is cleared away. Older ones are removed as `keep` asks after every rank has read its
// file of the new one back and found its checksums; what fails there is a warning.
//
// Collective over the engine's axis, between two steps; it blocks until the bytes are on stable storage. Weights and
// moments are not changed. `root` may be spelled differently by each rank but must be one folder.
// Memory: lists of tensors only. Jobs: several may save into one root at a time.
// Errors: kIo on every rank, naming the first rank that failed, its path and reason; older checkpoints are as before,
// and training may go on. kInternal when the ranks are about to save different states.
Saved save_checkpoint(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer);

// Removes what crashed saves left in `root`, as every save does before it begins; for a run that has looked at it and
// may not save again. One rank calls it. Never throws: what fails is a warning.
void clear_away(const std::string& root) noexcept;

// Saves while training goes on: start() copies this rank's shard, a thread of each rank writes it, and calls of poll()
// between steps take the ranks' common decisions. One save at a time. The same files, promises and errors as
// save_checkpoint().
// Memory: one copy of this rank's shard of masters, moments and frozen weights (plan::snapshot_bytes), kept until the
// end. Threads: called by the rank's own; the writing thread calls no other rank and touches no weight. Lifetime:
// engine and optimizer must outlive it. The destructor waits for the writing thread, and gives up what is not
// committed.
class BackgroundSaver {
 public:
  BackgroundSaver(shard::Engine& engine, optim::Optimizer& optimizer);
  ~BackgroundSaver();

  // A save is under way; the same on every rank.
  bool busy() const { return job_ != nullptr; }
  std::int64_t step() const;  // of the save under way

  // Collective. Returns when the shard is copied. Errors: those of save_checkpoint(); kInternal while busy().
  void start(const SaveRequest& request);

  // Collective, while busy(); costs one exchange of 8 bytes. The result when the save is complete, nothing while it
  // goes on. Errors: those of save_checkpoint(); the save is over then.
  std::optional<Saved> poll();

  // Collective. poll() until the save under way is over.
  Saved wait();

 private:
  class Job;
  shard::Engine& engine_;
  optim::Optimizer& optimizer_;
  at::Tensor buffer_;  // bytes
  std::unique_ptr<Job> job_;
};

}  // namespace intarsia::checkpoint
