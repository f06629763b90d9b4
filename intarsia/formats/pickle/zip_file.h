// Records of a zip archive whose records are stored as they are, as torch.save writes it. Internal to formats.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/io/file.h"

namespace intarsia::formats {

struct ZipRecord {
  std::string name;
  std::uint64_t begin = 0;  // byte in the archive
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
};

// The list of records of `bytes`, which may be a part of a file; `name` is for messages. Every record lies inside; no
// name comes twice. Memory: the directory's. Errors: kFormat for what is no zip archive, or a damaged or cut one;
// kUnsupported for packed or encrypted records. Source: PKWARE, APPNOTE 6.3, sections 4.3 and 4.5.3 (zip64).
std::vector<ZipRecord> read_zip_directory(std::span<const std::byte> bytes, const std::string& name);

// Errors: kFormat when the record's bytes do not have its checksum.
void check_zip_record(std::span<const std::byte> bytes, const ZipRecord& record, const std::string& name);

// The same for an archive that begins at byte `begin` of the file, read in parts of 1 MiB: unlike a mapping that is
// walked through, it does not make the whole file count as this process's memory. Errors: also kIo.
void check_zip_record(const io::Fd& file, const std::string& path, std::uint64_t begin, const ZipRecord& record);

}  // namespace intarsia::formats
