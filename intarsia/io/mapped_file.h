// A file as memory, read only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "intarsia/io/file.h"

namespace intarsia::io {

// Maps a whole regular file; move only. An empty file is a valid map of no bytes.
// Lifetime: views end with the object (moving it keeps them). Threads: const members may be called at once.
// Note: truncated maps. If somebody shortens the file afterwards, touching its lost pages kills the process (SIGBUS);
// check_unchanged() before a long read turns most such accidents into an error.
class MappedFile {
 public:
  // Errors: kIo.
  static MappedFile open(const std::string& path);
  // Maps a file that is already open; `path` is for messages.
  static MappedFile map(Fd fd, std::string path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Bytes [offset, offset + count). Errors: kIo unless they lie inside the file.
  std::span<const std::byte> view(std::uint64_t offset, std::uint64_t count) const;

  // Errors: kIo when the file no longer has the size that was mapped.
  void check_unchanged() const;

 private:
  MappedFile() = default;
  void unmap();

  Fd fd_;
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace intarsia::io
