#include "intarsia/checkpoint/verify.h"

#include <algorithm>
#include <vector>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {

void verify_file(const std::string& directory, const StoredFile& file, Verify verify) {
  constexpr std::uint64_t kBufferBytes = 1 << 20;
  const std::string path = concat(directory, "/", file.name);
  const io::Fd fd = io::open_read(path);
  const std::uint64_t bytes = io::file_size(fd, path);
  INTARSIA_CHECK(kFormat, bytes == file.bytes, printable(path), " has ", bytes, " bytes, its manifest says ",
                 file.bytes, bytes < file.bytes ? ": it is cut off" : "");
  if (verify == Verify::kSizes) return;
  std::vector<std::byte> buffer(std::min(bytes, kBufferBytes));
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < bytes; at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - at));
    io::read_exact_at(fd, path, at, part);
    crc = crc32c(part, crc);
  }
  INTARSIA_CHECK(kFormat, crc == file.crc32c, printable(path), " is damaged: its bytes 0 to ", bytes,
                 " have the CRC-32C ", crc32c_text(crc), ", its manifest says ", crc32c_text(file.crc32c));
}

}  // namespace intarsia::checkpoint
