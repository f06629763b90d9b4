#include "intarsia/formats/pickle/torch_writer.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

constexpr std::string_view kFolder = "archive/";
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint32_t kLarge = 0xFFFFFFFF;  // in a field of 32 bits: the value stands in the extra field
constexpr std::uint64_t kLocalBytes = 30;

// Little endian fields of a zip structure.
class Fields {
 public:
  Fields& u16(std::uint64_t value) { return put(static_cast<std::uint16_t>(value)); }
  Fields& u32(std::uint64_t value) { return put(static_cast<std::uint32_t>(value)); }
  Fields& u64(std::uint64_t value) { return put(value); }
  Fields& text(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  Fields& put(T value) {
    const auto raw = std::bit_cast<std::array<char, sizeof(T)>>(value);
    bytes_.append(raw.data(), raw.size());
    return *this;
  }
  std::string bytes_;
};

std::uint64_t in_32_bits(std::uint64_t value) { return std::min<std::uint64_t>(value, kLarge); }

}  // namespace

TorchArchiveWriter::TorchArchiveWriter(const io::Fd& fd, std::string path, std::uint64_t begin, std::string_view pickle)
    : fd_(fd), path_(std::move(path)), begin_(begin) {
  record("data.pkl", pickle);
  record("byteorder", "little");
}

void TorchArchiveWriter::write(std::string_view bytes) {
  io::write_all_at(fd_, path_, begin_ + at_, io::as_bytes(bytes));
  at_ += bytes.size();
}

// The checksum is written over its place in the header when all bytes are there.
void TorchArchiveWriter::begin_record(std::string name, std::uint64_t bytes) {
  INTARSIA_INVARIANT(left_ == 0, path_, ": ", left_, " bytes of a record are missing");
  records_.push_back({.name = concat(kFolder, name), .header = at_, .bytes = bytes});
  const Record& record = records_.back();
  Fields extra;
  if (bytes >= kLarge) extra.u16(1).u16(16).u64(bytes).u64(bytes);
  // What fills up to the alignment has a field of its own, of at least 4 bytes.
  const std::uint64_t end = at_ + kLocalBytes + record.name.size() + extra.bytes().size() + 4;
  const std::uint64_t padding = (kAlignment - end % kAlignment) % kAlignment;
  extra.u16(0x4246).u16(padding).text(std::string(padding, 'Z'));  // "FB", as torch has it
  Fields header;
  header.u32(0x04034b50).u16(bytes >= kLarge ? 45 : 20).u16(0).u16(0).u16(0).u16(0x21).u32(0);
  header.u32(in_32_bits(bytes)).u32(in_32_bits(bytes)).u16(record.name.size()).u16(extra.bytes().size());
  header.text(record.name).text(extra.bytes());
  write(header.bytes());
  left_ = bytes;
  if (left_ == 0) end_record();
}

void TorchArchiveWriter::end_record() {
  constexpr std::uint64_t kCrcPlace = 14;
  const Record& record = records_.back();
  io::write_all_at(fd_, path_, begin_ + record.header + kCrcPlace, io::as_bytes(Fields().u32(record.crc32).bytes()));
}

void TorchArchiveWriter::append(std::span<const std::byte> bytes) {
  INTARSIA_INVARIANT(bytes.size() <= left_, path_, ": ", bytes.size(), " bytes appended, ", left_, " are left");
  if (bytes.empty()) return;
  io::write_all_at(fd_, path_, begin_ + at_, bytes);
  Record& record = records_.back();
  record.crc32 = static_cast<std::uint32_t>(
      ::crc32_z(record.crc32, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  at_ += bytes.size();
  left_ -= bytes.size();
  if (left_ == 0) end_record();
}

void TorchArchiveWriter::record(std::string name, std::string_view text) {
  begin_record(std::move(name), text.size());
  append(io::as_bytes(text));
}

void TorchArchiveWriter::storage(std::string_view key, std::uint64_t bytes) {
  begin_record(concat("data/", key), bytes);
}

// The 64-bit end record is always there, so that one path serves archives of all sizes.
std::uint64_t TorchArchiveWriter::finish() {
  record("version", "3\n");
  const std::uint64_t directory = at_;
  for (const Record& record : records_) {
    Fields extra;
    const bool large = record.bytes >= kLarge, far = record.header >= kLarge;
    if (large || far) extra.u16(1).u16((large ? 16 : 0) + (far ? 8 : 0));
    if (large) extra.u64(record.bytes).u64(record.bytes);
    if (far) extra.u64(record.header);
    Fields entry;
    entry.u32(0x02014b50).u16(45).u16(large || far ? 45 : 20).u16(0).u16(0).u16(0).u16(0x21).u32(record.crc32);
    entry.u32(in_32_bits(record.bytes)).u32(in_32_bits(record.bytes)).u16(record.name.size());
    entry.u16(extra.bytes().size()).u16(0).u16(0).u16(0).u32(0).u32(in_32_bits(record.header));
    write(entry.text(record.name).text(extra.bytes()).bytes());
  }
  const std::uint64_t end = at_, bytes = end - directory, count = records_.size();
  Fields tail;
  tail.u32(0x06064b50).u64(44).u16(45).u16(45).u32(0).u32(0).u64(count).u64(count).u64(bytes).u64(directory);
  tail.u32(0x07064b50).u32(0).u64(end).u32(1);
  const std::uint64_t short_count = std::min<std::uint64_t>(count, 0xFFFF);
  tail.u32(0x06054b50).u16(0).u16(0).u16(short_count).u16(short_count).u32(in_32_bits(bytes));
  write(tail.u32(in_32_bits(directory)).u16(0).bytes());
  return begin_ + at_;
}

}  // namespace intarsia::formats
