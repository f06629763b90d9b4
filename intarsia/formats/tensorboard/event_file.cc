#include "intarsia/formats/tensorboard/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

template <typename Word>
void put_little_endian(std::string& out, Word word) {
  for (std::size_t byte = 0; byte < sizeof(Word); ++byte)
    out += static_cast<char>(static_cast<unsigned char>(word >> (8 * byte)));
}

// The few kinds of protobuf fields that events need. Source: protobuf's "Encoding" page.
class Message {
 public:
  Message& integer(int field, std::int64_t value) {
    varint(key(field, 0));
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real64(int field, double value) {
    varint(key(field, 1));
    put_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real32(int field, float value) {
    varint(key(field, 5));
    put_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    varint(key(field, 2));
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  static std::uint64_t key(int field, int wire_type) { return static_cast<std::uint64_t>(field << 3 | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(static_cast<unsigned char>(value | 0x80));
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(io::as_bytes(bytes));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

// The second in the name of an event file, or 0 for other names.
std::int64_t second_of(const std::string& name) {
  std::int64_t second = 0;
  if (!name.starts_with(kPrefix)) return 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), second);
  return second;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  std::string text(name.data());
  for (char& c : text)
    if (c == '/') c = '_';
  return text.empty() ? "host" : text;
}

}  // namespace

std::string version_event(double wall_time) { return Message().real64(1, wall_time).bytes(3, "brain.Event:2").text(); }

std::string scalars_event(double wall_time, std::int64_t step, std::span<const ScalarValue> values) {
  Message summary;
  for (const ScalarValue& scalar : values)
    summary.bytes(1, Message().bytes(1, scalar.tag).real32(2, scalar.value).text());
  return Message().real64(1, wall_time).integer(2, step).bytes(5, summary.text()).text();
}

std::string restart_event(double wall_time, std::int64_t step) {
  constexpr int kStart = 1;  // SessionLog.START
  return Message().real64(1, wall_time).integer(2, step).bytes(7, Message().integer(1, kStart).text()).text();
}

std::string tf_record(std::string_view bytes) {
  std::string out;
  put_little_endian(out, std::uint64_t{bytes.size()});
  put_little_endian(out, masked_crc(out));
  out += bytes;
  put_little_endian(out, masked_crc(bytes));
  return out;
}

EventFile::EventFile(const std::string& folder, double wall_time, std::int64_t restart_step) {
  std::error_code error;
  fs::create_directories(folder, error);
  INTARSIA_CHECK(kIo, !error, folder, ": cannot be created: ", error.message());
  auto second = static_cast<std::int64_t>(wall_time);
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    second = std::max(second, second_of(at->path().filename().string()) + 1);
  std::array<char, 24> digits{};
  std::snprintf(digits.data(), digits.size(), "%010lld", static_cast<long long>(second));
  path_ = (fs::path(folder) / concat(kPrefix, digits.data(), ".", host_name(), ".", ::getpid(), ".0")).string();
  file_ = io::create_exclusive(path_);
  put(version_event(wall_time));
  if (restart_step > 0) put(restart_event(wall_time, restart_step));
}

void EventFile::write(double wall_time, std::int64_t step, std::span<const ScalarValue> values) {
  put(scalars_event(wall_time, step, values));
}

void EventFile::put(const std::string& event) { io::write_all(file_, path_, io::as_bytes(tf_record(event))); }

}  // namespace intarsia::formats
