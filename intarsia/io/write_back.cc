#include "intarsia/io/write_back.h"

#include <fcntl.h>

namespace intarsia::io {

void start_write_back(const Fd& fd, std::uint64_t begin, std::uint64_t end) noexcept {
  if (begin >= end) return;
  ::sync_file_range(fd.get(), static_cast<off_t>(begin), static_cast<off_t>(end - begin), SYNC_FILE_RANGE_WRITE);
}

}  // namespace intarsia::io
