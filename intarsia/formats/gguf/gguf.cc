#include "intarsia/formats/gguf/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

constexpr std::uint64_t kMaxDims = 4, kMaxNameBytes = 1024, kMaxAlignment = 1 << 20, kMaxItems = 4 << 20;

// Types of values, as the file numbers them.
enum ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kFloat64
};

// Reads the header from front to back; whatever is asked for must lie inside the file.
class Cursor {
 public:
  explicit Cursor(const io::MappedFile& file) : file_(file) {}

  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, view(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view take_text() {
    const auto size = take<std::uint64_t>();
    const auto bytes = view(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // A count of things that each have at least `bytes` bytes in what is left.
  std::uint64_t take_count(std::uint64_t bytes, std::string_view what) {
    const auto count = take<std::uint64_t>();
    if (count > left() / bytes)
      refuse(what, " are said to be ", count, ", more than the ", left(), " bytes left of the file can hold");
    return count;
  }

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return file_.size() - at_; }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kFormat, printable(file_.path()), ": ", parts...);
  }

 private:
  std::span<const std::byte> view(std::uint64_t count) {
    if (count > left()) refuse("the header goes on behind the end of the file: ", count - left(), " bytes missing");
    const auto bytes = file_.view(at_, count);
    at_ += count;
    return bytes;
  }

  const io::MappedFile& file_;
  std::uint64_t at_ = 0;
};

std::uint64_t size_of(std::uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kFloat32:
      return 4;
    default:
      return 8;
  }
}

// Integers up to 64 bits with a sign.
std::int64_t take_integer(Cursor& in, std::uint32_t type) {
  switch (type) {
    case kU8:
      return in.take<std::uint8_t>();
    case kI8:
      return in.take<std::int8_t>();
    case kU16:
      return in.take<std::uint16_t>();
    case kI16:
      return in.take<std::int16_t>();
    case kU32:
      return in.take<std::uint32_t>();
    case kI32:
      return in.take<std::int32_t>();
    case kBool:
      return in.take<std::uint8_t>() != 0;
    case kU64: {
      const auto value = in.take<std::uint64_t>();
      if (value > INT64_MAX) in.refuse("an integer of ", value, ", allowed is up to 2^63 - 1");
      return static_cast<std::int64_t>(value);
    }
    default:
      return in.take<std::int64_t>();
  }
}

double take_float(Cursor& in, std::uint32_t type) {
  return type == kFloat32 ? static_cast<double>(in.take<float>()) : in.take<double>();
}

GgufValue take_array(Cursor& in, std::string_view key) {
  const auto type = in.take<std::uint32_t>();
  if (type == kArray || type > kFloat64) in.refuse("the list ", printable(key), " has items of type ", type);
  const std::uint64_t count = in.take_count(size_of(type), concat("the items of ", printable(key)));
  if (count > kMaxItems) in.refuse("the list ", printable(key), " has ", count, " items, allowed are ", kMaxItems);
  if (type == kString) {
    std::vector<std::string_view> out;
    out.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) out.push_back(in.take_text());
    return out;
  }
  if (type == kFloat32 || type == kFloat64) {
    std::vector<double> out;
    for (std::uint64_t i = 0; i < count; ++i) out.push_back(take_float(in, type));
    return out;
  }
  std::vector<std::int64_t> out;
  for (std::uint64_t i = 0; i < count; ++i) out.push_back(take_integer(in, type));
  return out;
}

GgufValue take_value(Cursor& in, std::string_view key) {
  const auto type = in.take<std::uint32_t>();
  switch (type) {
    case kString:
      return in.take_text();
    case kArray:
      return take_array(in, key);
    case kBool:
      return in.take<std::uint8_t>() != 0;
    case kFloat32:
    case kFloat64:
      return take_float(in, type);
    default:
      if (type > kFloat64) in.refuse("the value of ", printable(key), " has the unknown type ", type);
      return take_integer(in, type);
  }
}

GgufTensor take_tensor(Cursor& in) {
  GgufTensor out;
  const std::string_view name = in.take_text();
  if (name.size() > kMaxNameBytes) in.refuse("a tensor's name of ", name.size(), " bytes");
  out.name = name;
  const auto dims = in.take<std::uint32_t>();
  if (dims > kMaxDims) in.refuse("tensor ", printable(name), " has ", dims, " dimensions, allowed are ", kMaxDims);
  for (std::uint32_t i = 0; i < dims; ++i) {
    const auto size = in.take<std::uint64_t>();
    if (size > INT64_MAX) in.refuse("tensor ", printable(name), " has a dimension of ", size);
    out.shape.insert(out.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto type = in.take<std::uint32_t>();
  for (const GgufType known : {GgufType::kF32, GgufType::kF16, GgufType::kQ4_0, GgufType::kQ4_1, GgufType::kQ8_0,
                               GgufType::kQ6_K, GgufType::kBF16}) {
    if (static_cast<std::uint32_t>(known) != type) continue;
    out.type = known;
    out.begin = in.take<std::uint64_t>();
    return out;
  }
  constexpr std::string_view kOthers[] = {"", "",     "",     "",     "",     "",     "Q5_0", "Q5_1",
                                          "", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "",     "Q8_K"};
  fail(ErrorKind::kUnsupported, "tensor ", printable(name), " is stored as ",
       type < std::size(kOthers) && !kOthers[type].empty() ? kOthers[type] : concat("type ", type),
       ", which is not supported (F32, F16, BF16, Q8_0, Q4_0, Q4_1 and Q6_K are)");
}

// The tensor's bytes lie inside the file: checked before anything reads them.
void check_tensor(Cursor& in, GgufTensor& tensor, std::uint64_t data_begin, std::uint64_t file_bytes,
                  std::uint64_t alignment) {
  const GgufBlock block = block_of(tensor.type);
  std::int64_t numel = 1;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(numel, size, &numel))
      in.refuse("tensor ", printable(tensor.name), " has over 2^63 elements");
  }
  if (tensor.row_numel() % block.numel != 0)
    in.refuse("tensor ", printable(tensor.name), " of type ", name(tensor.type), " has rows of ", tensor.row_numel(),
              " elements, no multiple of ", block.numel);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(numel / block.numel), block.bytes, &bytes))
    in.refuse("tensor ", printable(tensor.name), " has over 2^64 bytes");
  const std::uint64_t room = file_bytes - data_begin;
  if (tensor.begin % alignment != 0 || tensor.begin > room || bytes > room - tensor.begin)
    in.refuse("tensor ", printable(tensor.name), " is ", bytes, " bytes from ", tensor.begin, " on, but the data have ",
              room, " bytes", tensor.begin % alignment != 0 ? concat(" in steps of ", alignment) : "");
  tensor.begin += data_begin;
}

}  // namespace

GgufBlock block_of(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return {1, 4};
    case GgufType::kF16:
    case GgufType::kBF16:
      return {1, 2};
    case GgufType::kQ4_0:
      return {32, 18};
    case GgufType::kQ4_1:
      return {32, 20};
    case GgufType::kQ8_0:
      return {32, 34};
    case GgufType::kQ6_K:
      return {256, 210};
  }
  INTARSIA_INVARIANT(false, "unknown GGUF type");
}

std::string_view name(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return "F32";
    case GgufType::kF16:
      return "F16";
    case GgufType::kBF16:
      return "BF16";
    case GgufType::kQ4_0:
      return "Q4_0";
    case GgufType::kQ4_1:
      return "Q4_1";
    case GgufType::kQ8_0:
      return "Q8_0";
    case GgufType::kQ6_K:
      return "Q6_K";
  }
  INTARSIA_INVARIANT(false, "unknown GGUF type");
}

std::int64_t GgufTensor::numel() const {
  std::int64_t out = 1;
  for (const std::int64_t size : shape) out *= size;
  return out;
}

GgufFile GgufFile::open(const std::string& path) {
  GgufFile out(io::MappedFile::open(path));
  Cursor in(out.file_);
  if (in.left() < 24 || in.take<std::uint32_t>() != 0x46554747u)
    in.refuse("does not begin with GGUF; this is no GGUF file");
  const auto version = in.take<std::uint32_t>();
  INTARSIA_CHECK(kUnsupported, version == 2 || version == 3, printable(path), ": GGUF version ", version,
                 ", known are 2 and 3 (and only little-endian files)");
  // A tensor has a name's length, dimensions, type and offset; a value a key's length and a type.
  const std::uint64_t tensors = in.take_count(8 + 4 + 4 + 8, "the tensors");
  const std::uint64_t values = in.take_count(8 + 4 + 1, "the values");
  for (std::uint64_t i = 0; i < values; ++i) {
    const std::string_view key = in.take_text();
    if (!out.values_.emplace(key, take_value(in, key)).second) in.refuse("the key ", printable(key), " comes twice");
  }
  try {
    for (std::uint64_t i = 0; i < tensors; ++i) out.tensors_.push_back(take_tensor(in));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    fail(error.kind(), printable(path), ": ", error.what());
  }
  const std::int64_t alignment = out.integer("general.alignment").value_or(32);
  if (alignment < 1 || alignment > static_cast<std::int64_t>(kMaxAlignment))
    in.refuse("general.alignment is ", alignment);
  const auto step = static_cast<std::uint64_t>(alignment);
  const std::uint64_t data_begin = std::min((in.at() + step - 1) / step * step, out.file_.size());
  for (GgufTensor& tensor : out.tensors_) check_tensor(in, tensor, data_begin, out.file_.size(), step);
  std::vector<std::string_view> names;
  for (const GgufTensor& tensor : out.tensors_) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) in.refuse("the tensor ", printable(*twice), " comes twice");
  return out;
}

const GgufTensor* GgufFile::find(std::string_view wanted) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const GgufTensor& t) { return t.name == wanted; });
  return found == tensors_.end() ? nullptr : &*found;
}

template <typename T>
const T* GgufFile::value(std::string_view key, const char* expected) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  const T* out = std::get_if<T>(&found->second);
  INTARSIA_CHECK(kFormat, out != nullptr, printable(path()), ": the value of ", printable(key), " must be ", expected);
  return out;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const auto* out = value<std::int64_t>(key, "an integer");
  return out == nullptr ? std::nullopt : std::optional(*out);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const auto* out = value<double>(key, "a number with a fraction");
  return out == nullptr ? std::nullopt : std::optional(*out);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const auto* out = value<bool>(key, "true or false");
  return out == nullptr ? std::nullopt : std::optional(*out);
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const auto* out = value<std::string_view>(key, "a text");
  return out == nullptr ? std::nullopt : std::optional(std::string(*out));
}

const std::vector<std::string_view>* GgufFile::texts(std::string_view key) const {
  return value<std::vector<std::string_view>>(key, "a list of texts");
}

const std::vector<std::int64_t>* GgufFile::integers(std::string_view key) const {
  return value<std::vector<std::int64_t>>(key, "a list of integers");
}

const std::vector<double>* GgufFile::numbers(std::string_view key) const {
  return value<std::vector<double>>(key, "a list of numbers");
}

void GgufFile::read_row(const GgufTensor& tensor, std::int64_t row, float* out) const {
  INTARSIA_INVARIANT(row >= 0 && row < tensor.num_rows(), "row ", row, " of ", tensor.num_rows());
  const GgufBlock block = block_of(tensor.type);
  const auto bytes = static_cast<std::uint64_t>(tensor.row_numel() / block.numel) * block.bytes;
  const auto view = file_.view(tensor.begin + static_cast<std::uint64_t>(row) * bytes, bytes);
  dequantise(tensor.type, view.data(), tensor.row_numel(), out);
}

}  // namespace intarsia::formats
