// Finding and loading checkpoints.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/checkpoint/manifest.h"
#include "intarsia/checkpoint/verify.h"
#include "intarsia/comm/communicator.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/shard/engine.h"

namespace intarsia::checkpoint {

struct PassedOver {
  std::string path;
  std::string reason;  // one line
};

struct Found {
  std::optional<std::string> path;      // the complete checkpoint of the highest step
  std::optional<Manifest> manifest;     // its manifest
  std::vector<PassedOver> passed_over;  // what looked newer but is not complete, newest first
};

// The complete checkpoint of the highest step in `root`, found by looking at all of them; ROOT/latest is not asked.
// Complete means: the manifest is there and correct, and every file has its size and checksums. A missing root holds no
// checkpoint. Memory: one buffer of 1 MiB. Errors: kIo when `root` cannot be listed.
Found find_checkpoint(const std::string& root);

// Whether `root` holds a checkpoint, a damaged one too. A missing root holds none. Errors: kIo when it cannot be
// listed.
bool holds_checkpoints(const std::string& root);

// Asked on every rank before values are read; throws, on all ranks alike, when the checkpoint is not for this run.
using Accept = std::function<void(const Manifest&)>;

// Fills masters, moments, frozen weights and the optimizer's counter from the checkpoint at `path`, then renews what is
// computed with (Engine::publish). Each rank reads the pieces it holds, from however many files, and with kHashes
// checks the blocks of 1 MiB that they lie in, no other bytes: ranks, stage and compute dtype may differ from those
// that saved. On equal layouts everything is bit-equal; masters and moments always. Collective over the engine's axis.
// Everything is checked on all ranks before the first value is replaced, so that after an error of the check the engine
// is as before. Memory: one buffer of 1 MiB; 4 bytes an element of the largest frozen parameter when its dtype changes.
// Errors: kIo, kFormat on every rank with the first rank that failed and its reason: a tensor that is missing, of
// another shape or not covered by pieces, one that the model does not have, a file of another size or checksum; those
// of `accept`.
Manifest load_checkpoint(const std::string& path, shard::Engine& engine, optim::Optimizer& optimizer,
                         Verify verify = Verify::kHashes, const Accept& accept = {});

// load_checkpoint() of the newest checkpoint in `root` that all ranks can read and that is undamaged, as far as they
// need it: what is damaged for one is passed over by all. Nothing is found where no save has ever been completed.
// Collective. Errors: kFormat when there are checkpoints and none of them can be used: to begin anew is the user's
// choice; what `accept` throws; kFormat when an undamaged one is of another model or optimizer, which is no reason to
// take an older one.
Found load_newest(const std::string& root, shard::Engine& engine, optim::Optimizer& optimizer,
                  const Accept& accept = {});

}  // namespace intarsia::checkpoint
