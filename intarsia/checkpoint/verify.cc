#include "intarsia/checkpoint/verify.h"

#include <fcntl.h>

#include <algorithm>
#include <ranges>
#include <vector>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::checkpoint {
namespace {

constexpr std::size_t kBlocksAhead = 32;  // of 1 MiB

void verify_block(const io::Fd& fd, const std::string& path, const StoredFile& file, std::size_t block,
                  std::vector<std::byte>& buffer) {
  const std::uint64_t begin = block * kBlockBytes;
  buffer.resize(std::min(file.bytes - begin, kBlockBytes));
  io::read_exact_at(fd, path, begin, buffer);
  const std::uint32_t crc = crc32c(buffer);
  INTARSIA_CHECK(kFormat, crc == file.blocks[block], printable(path), " is damaged: its bytes ", begin, " to ",
                 begin + buffer.size(), " have the CRC-32C ", crc32c_text(crc), ", its manifest says ",
                 crc32c_text(file.blocks[block]));
}

io::Fd open_checked(const std::string& path, const StoredFile& file) {
  io::Fd fd = io::open_read(path);
  const std::uint64_t bytes = io::file_size(fd, path);
  INTARSIA_CHECK(kFormat, bytes == file.bytes, printable(path), " has ", bytes, " bytes, its manifest says ",
                 file.bytes, bytes < file.bytes ? ": it is cut off" : "");
  return fd;
}

// `blocks` in ascending order. The next ones are asked for ahead, so that the disk has work while one is summed.
void verify_each(const io::Fd& fd, const std::string& path, const StoredFile& file, const auto& blocks) {
  std::vector<std::byte> buffer;
  auto ahead = blocks.begin();
  for (const std::size_t block : blocks) {
    for (; ahead != blocks.end() && *ahead < block + kBlocksAhead; ++ahead)
      ::posix_fadvise(fd.get(), static_cast<off_t>(*ahead * kBlockBytes), kBlockBytes, POSIX_FADV_WILLNEED);
    verify_block(fd, path, file, block, buffer);
  }
}

void verify_all(const io::Fd& fd, const std::string& path, const StoredFile& file) {
  verify_each(fd, path, file, std::views::iota(std::size_t{0}, file.blocks.size()));
}

}  // namespace

void verify_blocks(const io::Fd& fd, const std::string& path, const StoredFile& file,
                   const std::set<std::size_t>& blocks) {
  verify_each(fd, path, file, blocks);
}

void verify_file(const std::string& directory, const StoredFile& file, Verify verify) {
  const std::string path = concat(directory, "/", file.name);
  const io::Fd fd = open_checked(path, file);
  if (verify == Verify::kHashes) verify_all(fd, path, file);
}

void verify_on_disk(const std::string& directory, const StoredFile& file) {
  const std::string path = concat(directory, "/", file.name);
  const io::Fd fd = open_checked(path, file);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);  // a hint; some file systems keep what they have
  verify_all(fd, path, file);
}

}  // namespace intarsia::checkpoint
