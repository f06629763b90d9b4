#include "intarsia/base/philox.h"

#include <cmath>

namespace intarsia {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

// 24 random bits as a float in [0, 1): every value is exact.
float to_unit(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
                                 static_cast<std::uint32_t>(counter_high),
                                 static_cast<std::uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kMultiplier0) * c[0];
    const std::uint64_t product1 = static_cast<std::uint64_t>(kMultiplier1) * c[2];
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(product0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

std::uint64_t philox_key(std::uint64_t seed, std::string_view purpose) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a over the purpose, then mixed with the seed by one Philox call
  for (const char character : purpose) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3ULL;
  const auto bits = philox(seed, hash);
  return static_cast<std::uint64_t>(bits[1]) << 32 | bits[0];
}

float philox_uniform(std::uint64_t key, std::uint64_t index) { return to_unit(philox(key, index / 4)[index % 4]); }

std::array<float, 2> philox_normal_pair(std::uint64_t key, std::uint64_t pair) {
  const auto bits = philox(key, pair, 1);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(to_unit(bits[0]))));
  const double angle = 6.283185307179586 * static_cast<double>(to_unit(bits[1]));
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

float philox_normal(std::uint64_t key, std::uint64_t index) { return philox_normal_pair(key, index / 2)[index % 2]; }

}  // namespace intarsia
