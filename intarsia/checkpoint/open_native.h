// Our own checkpoints, seen as those of the peers.
#pragma once

#include <string>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::checkpoint {

// The checkpoint in the folder `path`. `verify`: compares every file with its checksum, else only with its size.
// Errors: kIo; kFormat as read_manifest, verify_file, and for a file that has a tensor otherwise than the manifest
// says.
formats::LogicalCheckpoint open_native(const std::string& path, bool verify);

}  // namespace intarsia::checkpoint
