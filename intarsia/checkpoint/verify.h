// Whether files are what their manifest says.
#pragma once

#include <string>

#include "intarsia/checkpoint/manifest.h"

namespace intarsia::checkpoint {

enum class Verify {
  kSizes,   // presence and sizes; for a checkpoint that find_checkpoint() has just given
  kHashes,  // also the checksums, which needs every byte
};

// Checks one file of the checkpoint in `directory`. Memory: 1 MiB.
// Errors: kIo; kFormat with the file, what was found and what the manifest says.
void verify_file(const std::string& directory, const StoredFile& file, Verify verify);

}  // namespace intarsia::checkpoint
