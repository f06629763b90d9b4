// GGUF's blocks to fp32. Source: llama.cpp, ggml-common.h (blocks) and ggml-quants.c (formulas).
#include <bit>
#include <cstring>

#include "intarsia/base/error.h"
#include "intarsia/formats/gguf/gguf.h"

namespace intarsia::formats {
namespace {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31u, mantissa = half & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float small = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -small : small;
}

float half_at(const std::byte* at) { return half_to_float(load<std::uint16_t>(at)); }

void q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 16; ++j) {
    const int q = std::to_integer<int>(block[2 + j]);
    out[j] = static_cast<float>((q & 15) - 8) * d;
    out[j + 16] = static_cast<float>((q >> 4) - 8) * d;
  }
}

void q4_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int j = 0; j < 16; ++j) {
    const int q = std::to_integer<int>(block[4 + j]);
    out[j] = static_cast<float>(q & 15) * d + m;
    out[j + 16] = static_cast<float>(q >> 4) * d + m;
  }
}

void q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(load<std::int8_t>(block + 2 + j)) * d;
}

// 256 elements of 6 bits: 4 low ones in ql[128], 2 high ones in qh[64]; a scale for each 16 in scales[16], then d.
void q6_k(const std::byte* block, float* out) {
  const std::byte* low = block;
  const std::byte* high = block + 128;
  const std::byte* scales = block + 192;
  const float d = half_at(block + 208);
  for (int half = 0; half < 2; ++half, low += 64, high += 32, scales += 8, out += 128) {
    for (int l = 0; l < 32; ++l) {
      const int bits = std::to_integer<int>(high[l]);
      const int a = std::to_integer<int>(low[l]), b = std::to_integer<int>(low[l + 32]);
      const int q[4] = {(a & 15) | ((bits & 3) << 4), (b & 15) | (((bits >> 2) & 3) << 4),
                        (a >> 4) | (((bits >> 4) & 3) << 4), (b >> 4) | ((bits >> 6) << 4)};
      for (int k = 0; k < 4; ++k) {
        const float scale = d * static_cast<float>(load<std::int8_t>(scales + l / 16 + 2 * k));
        out[l + 32 * k] = scale * static_cast<float>(q[k] - 32);
      }
    }
  }
}

template <typename Block>
void each_block(const std::byte* bytes, std::int64_t numel, float* out, GgufBlock block, const Block& one) {
  for (std::int64_t i = 0; i < numel; i += block.numel, bytes += block.bytes, out += block.numel) one(bytes, out);
}

}  // namespace

void dequantise(GgufType type, const std::byte* bytes, std::int64_t numel, float* out) {
  const GgufBlock block = block_of(type);
  INTARSIA_INVARIANT(numel % block.numel == 0, numel, " elements are no whole blocks of ", block.numel);
  switch (type) {
    case GgufType::kF32:
      std::memcpy(out, bytes, static_cast<std::size_t>(numel) * sizeof(float));
      return;
    case GgufType::kF16:
      return each_block(bytes, numel, out, block, [](const std::byte* at, float* to) { *to = half_at(at); });
    case GgufType::kBF16:
      return each_block(bytes, numel, out, block, [](const std::byte* at, float* to) {
        *to = std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(at)} << 16);
      });
    case GgufType::kQ4_0:
      return each_block(bytes, numel, out, block, q4_0);
    case GgufType::kQ4_1:
      return each_block(bytes, numel, out, block, q4_1);
    case GgufType::kQ8_0:
      return each_block(bytes, numel, out, block, q8_0);
    case GgufType::kQ6_K:
      return each_block(bytes, numel, out, block, q6_k);
  }
  INTARSIA_INVARIANT(false, "unknown GGUF type");
}

}  // namespace intarsia::formats
