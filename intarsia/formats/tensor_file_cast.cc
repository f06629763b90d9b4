// Widening of stored elements to fp32. memcpy moves each element, because a file need not align its tensors.
#include <bit>
#include <cstring>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::formats {
namespace {

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;  // infinities and NaN keep their fraction
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <typename Stored, typename Convert>
void convert(const std::byte* from, std::int64_t count, float* out, Convert to_float) {
  for (std::int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof value, sizeof value);
    out[i] = to_float(value);
  }
}

}  // namespace

void read_as_f32(const TensorFile& file, const TensorInfo& tensor, std::int64_t begin, std::int64_t end, float* out) {
  const auto where = [&] { return concat(printable(file.path()), ": tensor \"", printable(tensor.name), "\""); };
  INTARSIA_CHECK(kFormat, 0 <= begin && begin <= end && end <= tensor.numel(), where(), ": elements ", begin, " to ",
                 end, " were asked for, it has ", tensor.numel());
  file.check_unchanged();
  const std::byte* from = file.bytes(tensor).data() + static_cast<std::size_t>(begin) * dtype_size(tensor.dtype);
  const std::int64_t count = end - begin;
  if (count == 0) return;
  switch (tensor.dtype) {
    case DType::kF32:
      std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kBF16:
      return convert<std::uint16_t>(from, count, out, from_bf16);
    case DType::kF16:
      return convert<std::uint16_t>(from, count, out, from_f16);
    case DType::kF64:
      return convert<double>(from, count, out, [](double value) { return static_cast<float>(value); });
    default:
      fail(ErrorKind::kFormat, where(), ": dtype ", safetensors_name(tensor.dtype),
           " cannot be a weight; F32, BF16, F16 and F64 can");
  }
}

}  // namespace intarsia::formats
