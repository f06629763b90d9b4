#include "intarsia/formats/pickle/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

constexpr std::uint64_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr std::uint64_t kMaxRecords = 1'000'000;

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::vector<ZipRecord> run() {
    find_directory();
    if (entries_ > kMaxRecords || entries_ > directory_bytes_ / kEntryBytes)
      refuse(entries_, " records are said to be in a directory of ", directory_bytes_, " bytes");
    std::vector<ZipRecord> out;
    std::uint64_t at = directory_;
    for (std::uint64_t i = 0; i < entries_; ++i) out.push_back(entry(at));
    std::vector<std::string_view> names;
    for (const ZipRecord& record : out) names.push_back(record.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) refuse("the record ", printable(*twice), " comes twice");
    return out;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kFormat, printable(name_), ": ", parts...);
  }

  template <typename T>
  T at(std::uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset)
      refuse("damaged zip archive: it ends at byte ", bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  // The end record is the last thing but a comment of up to 64 KiB.
  void find_directory() {
    if (bytes_.size() < kEndBytes || at<std::uint32_t>(0) != 0x04034b50u)
      refuse("this is no zip archive of torch.save");
    const std::uint64_t last = bytes_.size() - kEndBytes, first = last > 0xFFFF ? last - 0xFFFF : 0;
    std::uint64_t end = last + 1;
    while (end-- > first) {
      if (at<std::uint32_t>(end) == 0x06054b50u && at<std::uint16_t>(end + 20) == bytes_.size() - end - kEndBytes)
        break;
      if (end == first) refuse("the zip archive has no directory at its end; the file is cut");
    }
    entries_ = at<std::uint16_t>(end + 10);
    directory_bytes_ = at<std::uint32_t>(end + 12);
    directory_ = at<std::uint32_t>(end + 16);
    if (end >= kLocatorBytes && at<std::uint32_t>(end - kLocatorBytes) == 0x07064b50u) {
      const auto end64 = at<std::uint64_t>(end - kLocatorBytes + 8);
      if (end64 > end || kEnd64Bytes > end - end64 || at<std::uint32_t>(end64) != 0x06064b50u)
        refuse("damaged zip archive: its 64-bit end record is not where it is said to be");
      entries_ = at<std::uint64_t>(end64 + 32);
      directory_bytes_ = at<std::uint64_t>(end64 + 40);
      directory_ = at<std::uint64_t>(end64 + 48);
    }
    if (directory_ > end || directory_bytes_ > end - directory_)
      refuse("damaged zip archive: its directory lies outside");
  }

  ZipRecord entry(std::uint64_t& offset) const {
    const std::uint64_t end = directory_ + directory_bytes_;
    if (end - offset < kEntryBytes || at<std::uint32_t>(offset) != 0x02014b50u)
      refuse("damaged zip archive: no record at byte ", offset);
    const auto flags = at<std::uint16_t>(offset + 8), method = at<std::uint16_t>(offset + 10);
    ZipRecord out;
    out.crc32 = at<std::uint32_t>(offset + 16);
    std::uint64_t packed = at<std::uint32_t>(offset + 20), local = at<std::uint32_t>(offset + 42);
    out.size = at<std::uint32_t>(offset + 24);
    const std::uint64_t name_bytes = at<std::uint16_t>(offset + 28), extra_bytes = at<std::uint16_t>(offset + 30),
                        comment_bytes = at<std::uint16_t>(offset + 32);
    const std::uint64_t name_begin = offset + kEntryBytes;
    if (name_bytes + extra_bytes + comment_bytes > end - name_begin)
      refuse("damaged zip archive: a record's name goes on behind its end");
    out.name.assign(reinterpret_cast<const char*>(bytes_.data()) + name_begin, name_bytes);
    read_extra(name_begin + name_bytes, extra_bytes, out.size, packed, local);
    INTARSIA_CHECK(kUnsupported, method == 0 && (flags & 1u) == 0, printable(name_), ": the record ",
                   printable(out.name), method == 0 ? " is encrypted" : " is packed (deflated)",
                   ", which is not supported; torch.save stores records as they are");
    if (packed != out.size) refuse("the record ", printable(out.name), " has two sizes, ", packed, " and ", out.size);
    if (local > directory_ || kLocalBytes > directory_ - local || at<std::uint32_t>(local) != 0x04034b50u)
      refuse("damaged zip archive: the record ", printable(out.name), " is not where the directory says");
    out.begin = local + kLocalBytes + at<std::uint16_t>(local + 26) + at<std::uint16_t>(local + 28);
    if (out.begin > directory_ || out.size > directory_ - out.begin)
      refuse("the record ", printable(out.name), " of ", out.size, " bytes goes on behind the archive's data");
    offset = name_begin + name_bytes + extra_bytes + comment_bytes;
    return out;
  }

  // The 64-bit numbers, of those that do not fit in 32 bits.
  void read_extra(std::uint64_t offset, std::uint64_t count, std::uint64_t& size, std::uint64_t& packed,
                  std::uint64_t& local) const {
    for (const std::uint64_t end = offset + count; end - offset >= 4;) {
      const auto kind = at<std::uint16_t>(offset), bytes = at<std::uint16_t>(offset + 2);
      offset += 4;
      if (bytes > end - offset) refuse("damaged zip archive: an extra field goes on behind its record");
      if (kind == 1) {
        std::uint64_t field = offset;
        for (std::uint64_t* number : {&size, &packed, &local}) {
          if (*number != 0xFFFFFFFFu) continue;
          if (field + 8 > offset + bytes) refuse("damaged zip archive: a 64-bit number is missing");
          *number = at<std::uint64_t>(field);
          field += 8;
        }
      }
      offset += bytes;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::uint64_t entries_ = 0, directory_ = 0, directory_bytes_ = 0;
};

void compare_crc(uLong crc, const ZipRecord& record, const std::string& name) {
  INTARSIA_CHECK(kFormat, crc == record.crc32, printable(name), ": the record ", printable(record.name),
                 " does not have its checksum (CRC-32); the file is damaged, or was written with "
                 "torch.serialization.set_crc32_options(False)");
}

}  // namespace

std::vector<ZipRecord> read_zip_directory(std::span<const std::byte> bytes, const std::string& name) {
  return ZipReader(bytes, name).run();
}

void check_zip_record(std::span<const std::byte> bytes, const ZipRecord& record, const std::string& name) {
  uLong crc = ::crc32(0, nullptr, 0);
  constexpr std::uint64_t kStep = std::uint64_t{1} << 30;
  for (std::uint64_t done = 0; done < record.size; done += kStep) {
    const std::uint64_t count = std::min(kStep, record.size - done);
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + record.begin + done), static_cast<uInt>(count));
  }
  compare_crc(crc, record, name);
}

void check_zip_record(const io::Fd& file, const std::string& path, std::uint64_t begin, const ZipRecord& record) {
  constexpr std::uint64_t kPart = 1 << 20;
  std::vector<std::byte> buffer(std::min(kPart, record.size));
  uLong crc = ::crc32(0, nullptr, 0);
  for (std::uint64_t done = 0; done < record.size;) {
    const auto part = std::span(buffer).first(std::min(kPart, record.size - done));
    io::read_exact_at(file, path, begin + record.begin + done, part);
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    done += part.size();
  }
  compare_crc(crc, record, path);
}

}  // namespace intarsia::formats
