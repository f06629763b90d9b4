// Writing that does not wait for fsync: the disk begins while the file is still being filled.
#pragma once

#include <cstdint>

#include "intarsia/io/file.h"

namespace intarsia::io {

// Asks the system to begin putting bytes [begin, end) of the file on disk, and does not wait for it. Only a hint: what
// is durable, and whether it failed, fsync_file() says. Without it Linux keeps as much as a tenth of the memory dirty
// before it begins, so that a save fills memory first and waits for the disk after that, instead of doing both at once.
void start_write_back(const Fd& fd, std::uint64_t begin, std::uint64_t end) noexcept;

}  // namespace intarsia::io
