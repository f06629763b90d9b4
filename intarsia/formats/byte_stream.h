// The bytes of a file in order, unpacked where its name ends in .gz or .zst.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace intarsia::formats {

// Threads: one at a time. Memory: two blocks of up to 1 MiB, and what the format's window needs (up to 128 MiB).
class ByteStream {
 public:
  // Errors: kIo.
  static std::unique_ptr<ByteStream> open(const std::string& path);
  virtual ~ByteStream() = default;

  // Replaces `block` by the next bytes, at most 1 MiB; false, and an empty block, at the end.
  // Errors: kIo; kFormat, with the file, for packed bytes that are damaged or cut.
  virtual bool read(std::string& block) = 0;
  // Bytes of the file that were read so far.
  virtual std::uint64_t bytes_done() const = 0;
};

// The name without a final .gz or .zst, which says what the bytes inside are.
std::string_view unpacked_name(std::string_view path);

}  // namespace intarsia::formats
