// Going on from a checkpoint of a peer.
#pragma once

#include <optional>
#include <string>

#include "intarsia/checkpoint/manifest.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/shard/engine.h"

namespace intarsia::checkpoint {

// What a peer's checkpoint says beside its tensors, as far as this run can go on from it.
struct PeerProgress {
  std::string format;             // "DeepSpeed ZeRO-2", ...
  Progress progress;              // without a data position where the format tells none
  std::optional<double> next_lr;  // that of the peer's next update, when all groups have one
  bool has_data_position = false;
};

// Fills masters, state tensors and frozen weights from the checkpoint at `path` (formats::open_checkpoint), sets the
// optimizer's counter, and renews what is computed with. Each rank reads the pieces it holds, whatever layout wrote
// them; the ranks share the comparison with checksums. Values are as stored, bit for bit, where both are fp32.
// Collective over the engine's axis. Everything is checked on all ranks before the first value is replaced.
// Memory: the list of pieces, and a buffer of 1 MiB. Errors: kIo, kFormat on every rank: weights that are not this
// model's, states that this run's optimizer keeps and the checkpoint lacks; kUnsupported when it has no optimizer
// state.
PeerProgress load_peer(const std::string& path, shard::Engine& engine, optim::Optimizer& optimizer);

}  // namespace intarsia::checkpoint
