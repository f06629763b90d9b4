#include "intarsia/formats/pickle/pickle_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

// Little endian, as everything in a pickle but floats.
template <typename T>
void put(std::string& out, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  out.append(bytes.data(), bytes.size());
}

}  // namespace

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

void PickleWriter::none() { bytes_ += 'N'; }
void PickleWriter::boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    put(bytes_, static_cast<std::uint8_t>(value));
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    bytes_ += 'J';
    put(bytes_, static_cast<std::int32_t>(value));
  } else {
    bytes_ += "\x8a\x08";  // LONG1 of 8 bytes
    put(bytes_, value);
  }
}

void PickleWriter::number(double value) {
  bytes_ += 'G';
  auto bytes = std::bit_cast<std::array<char, 8>>(value);
  std::ranges::reverse(bytes);  // big endian
  bytes_.append(bytes.data(), bytes.size());
}

void PickleWriter::text(std::string_view value) {
  bytes_ += 'X';
  put(bytes_, static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
}

void PickleWriter::tuple(const Fill& items) {
  bytes_ += '(';
  items();
  bytes_ += 't';
}

void PickleWriter::list(const Fill& items) {
  bytes_ += "](";
  items();
  bytes_ += 'e';
}

void PickleWriter::dict(const Fill& keys_and_values) {
  bytes_ += '}';
  set_items(keys_and_values);
}

void PickleWriter::set_items(const Fill& keys_and_values) {
  bytes_ += '(';
  keys_and_values();
  bytes_ += 'u';
}

void PickleWriter::integers(const std::vector<std::int64_t>& values) {
  tuple([&] {
    for (const std::int64_t value : values) integer(value);
  });
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  bytes_ += concat("c", module, "\n", name, "\n");
}

void PickleWriter::call(std::string_view module, std::string_view name, const Fill& arguments) {
  global(module, name);
  tuple(arguments);
  bytes_ += 'R';
}

void PickleWriter::object(std::string_view module, std::string_view name, const Fill& state) {
  global(module, name);
  bytes_ += ")\x81";
  state();
  bytes_ += 'b';
}

void PickleWriter::persistent(const Fill& id) {
  id();
  bytes_ += 'Q';
}

std::string PickleWriter::take() {
  std::string out = std::move(bytes_) + ".";
  bytes_ = "\x80\x02";
  return out;
}

std::string_view storage_class(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "FloatStorage";
    case DType::kF64:
      return "DoubleStorage";
    case DType::kF16:
      return "HalfStorage";
    case DType::kBF16:
      return "BFloat16Storage";
    case DType::kI64:
      return "LongStorage";
    default:
      fail(ErrorKind::kUnsupported, "a tensor of ", short_name(dtype), " is not written to files of torch.save");
  }
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), as torch.save writes it.
void put_tensor(PickleWriter& pickle, std::string_view key, DType dtype, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::int64_t numel = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = numel;
    numel *= shape[dim];
  }
  pickle.call("torch._utils", "_rebuild_tensor_v2", [&] {
    pickle.persistent([&] {
      pickle.tuple([&] {
        pickle.text("storage");
        pickle.global("torch", storage_class(dtype));
        pickle.text(key);
        pickle.text("cpu");
        pickle.integer(numel);
      });
    });
    pickle.integer(0);
    pickle.integers(shape);
    pickle.integers(strides);
    pickle.boolean(false);
    pickle.call("collections", "OrderedDict", [] {});
  });
}

}  // namespace intarsia::formats
