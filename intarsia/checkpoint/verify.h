// Whether files are what their manifest says.
#pragma once

#include <set>
#include <string>

#include "intarsia/checkpoint/manifest.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {

enum class Verify {
  kSizes,   // presence and sizes
  kHashes,  // also the checksums, which needs every byte that is asked for
};

// Checks one file of the checkpoint in `directory`. Memory: 1 MiB.
// Errors: kIo; kFormat with the file, the range of its bytes that is damaged, what was found and what the manifest
// says.
void verify_file(const std::string& directory, const StoredFile& file, Verify verify);

// Checks these blocks of a file that is open and has its size. Memory and errors as above.
void verify_blocks(const io::Fd& fd, const std::string& path, const StoredFile& file,
                   const std::set<std::size_t>& blocks);

// verify_file(kHashes) of bytes that come from the disk as far as the system allows: it is asked to forget those that
// it keeps in memory.
void verify_on_disk(const std::string& directory, const StoredFile& file);

}  // namespace intarsia::checkpoint
