// Commands that look at checkpoints: convert, inspect, diff. `intarsia` runs them without torch; for checkpoints of
// Intarsia's own format, whose reader lives with the trainer, libexec/intarsia-rank runs the same code.
#pragma once

#include <functional>
#include <string>

#include "intarsia/formats/peers/copy_tensor.h"
#include "intarsia/formats/peers/logical_checkpoint.h"
#include "intarsia/formats/peers/peer_state.h"

namespace intarsia::cli {

// Opens a checkpoint of any format that the program knows. `verify`: also compare it with its checksums.
using OpenCheckpoint = std::function<formats::LogicalCheckpoint(const std::string& path, bool verify)>;

// The peers' formats: formats::open_checkpoint().
formats::LogicalCheckpoint open_peer(const std::string& path, bool verify);

// Whether an argument is a folder with a manifest of ours, or a RUN or a folder that holds such.
bool names_native_checkpoint(int argc, char** argv);
// The checkpoint that `path` means: itself, or of a RUN or its folder of checkpoints the one of the highest step.
// Empty when it is none of ours.
std::string find_native(const std::string& path);

// Writes a RUN of Intarsia: checkpoint, RUN, its state, the model's config.json (empty: not known), progress.
using WriteNative = std::function<void(const formats::LogicalCheckpoint&, const std::string&, const formats::PeerState&,
                                       const std::string&, const formats::WriteProgress&)>;

// Whether `convert` is asked to write one, which only intarsia-rank can.
bool asks_for_native(int argc, char** argv);

int convert_command(int argc, char** argv, const OpenCheckpoint& open, const WriteNative& write_native = {});
int inspect_command(int argc, char** argv, const OpenCheckpoint& open);
int diff_command(int argc, char** argv, const OpenCheckpoint& open);

}  // namespace intarsia::cli
