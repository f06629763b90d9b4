#include "intarsia/checkpoint/verify.h"

#include <fcntl.h>

#include <algorithm>
#include <vector>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::checkpoint {
namespace {

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

void verify_all(const io::Fd& fd, const std::string& path, const StoredFile& file) {
  std::vector<std::byte> buffer;
  for (std::size_t block = 0; block < file.blocks.size(); ++block) verify_block(fd, path, file, block, buffer);
}

}  // namespace

void verify_blocks(const io::Fd& fd, const std::string& path, const StoredFile& file,
                   const std::set<std::size_t>& blocks) {
  std::vector<std::byte> buffer;
  for (const std::size_t block : blocks) verify_block(fd, path, file, block, buffer);
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
