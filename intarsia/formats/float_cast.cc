#include "intarsia/formats/float_cast.h"

#include <bit>
#include <cstring>

#include "intarsia/base/error.h"

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

// To nearest, ties to even.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the addition.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

void widen(const std::byte* from, DType dtype, std::int64_t count, float* out) {
  if (count == 0) return;
  switch (dtype) {
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
      INTARSIA_INVARIANT(is_weight_dtype(dtype), "elements of dtype ", safetensors_name(dtype), " as fp32");
  }
}

std::span<const std::byte> narrow(std::span<const float> values, DType dtype, std::vector<std::uint16_t>& buffer) {
  if (dtype == DType::kF32) return std::as_bytes(values);
  INTARSIA_INVARIANT(dtype == DType::kBF16 || dtype == DType::kF16, "fp32 as ", safetensors_name(dtype));
  buffer.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    buffer[i] = dtype == DType::kBF16 ? to_bf16(values[i]) : to_f16(values[i]);
  return std::as_bytes(std::span(buffer));
}

}  // namespace intarsia::formats
