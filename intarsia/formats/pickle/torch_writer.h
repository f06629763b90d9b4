// Writer of the files of torch.save: zip archives whose records are stored as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/io/file.h"

namespace intarsia::formats {

// Appends one archive to an open file; DCP has many in one. First the pickle (PickleWriter), then the storages it
// names, each with all its bytes, then finish(). Storages begin at multiples of 64 bytes of the archive, as torch
// writes them, so that it can map them. Memory: the list of records. Errors: kIo.
class TorchArchiveWriter {
 public:
  // `begin`: the byte of the file where the archive begins. The file must outlive the writer.
  TorchArchiveWriter(const io::Fd& fd, std::string path, std::uint64_t begin, std::string_view pickle);

  // Begins the record of a storage of `bytes` bytes.
  void storage(std::string_view key, std::uint64_t bytes);
  // Its next bytes.
  void append(std::span<const std::byte> bytes);

  // Writes the directory. Returns the byte behind the archive. Errors: kInternal when a storage is not complete.
  std::uint64_t finish();

 private:
  struct Record {
    std::string name;
    std::uint64_t header = 0, bytes = 0;  // where its header begins, in the archive
    std::uint32_t crc32 = 0;
  };

  void begin_record(std::string name, std::uint64_t bytes);
  void end_record();
  void record(std::string name, std::string_view text);
  void write(std::string_view bytes);

  const io::Fd& fd_;
  std::string path_;
  std::uint64_t begin_;
  std::uint64_t at_ = 0;    // behind what is written, in the archive
  std::uint64_t left_ = 0;  // bytes that the present record still waits for
  std::vector<Record> records_;
};

}  // namespace intarsia::formats
