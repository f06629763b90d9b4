#include "intarsia/data/permutation.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"

namespace intarsia::data {
namespace {

// Words of the Philox counter that keep the two uses of one key apart.
constexpr std::uint64_t kCentre = 0, kCoin = 1;

// 64 random bits as a number below n. The bias is n / 2^64.
std::uint64_t below(std::uint64_t bits, std::uint64_t n) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::int64_t epoch, std::int64_t n) : n_(static_cast<std::uint64_t>(n)) {
  INTARSIA_INVARIANT(n > 0, "a permutation of ", n, " elements");
  // One key per epoch, so that the counter is free for rounds and elements.
  const auto epoch_bits = philox(philox_key(seed, "shuffle"), static_cast<std::uint64_t>(epoch));
  key_ = static_cast<std::uint64_t>(epoch_bits[1]) << 32 | epoch_bits[0];
  for (int round = 0; round < kRounds; ++round) {
    const auto bits = philox(key_, kCentre, static_cast<std::uint64_t>(round));
    centres_[static_cast<std::size_t>(round)] = below(static_cast<std::uint64_t>(bits[1]) << 32 | bits[0], n_);
  }
}

std::int64_t Permutation::at(std::int64_t index) const {
  INTARSIA_INVARIANT(index >= 0 && static_cast<std::uint64_t>(index) < n_, "element ", index, " of ", n_);
  auto x = static_cast<std::uint64_t>(index);
  for (int round = 0; round < kRounds; ++round) {
    // x and its mirror image about the round's centre change places or not; both ask the same coin.
    const std::uint64_t centre = centres_[static_cast<std::size_t>(round)];
    const std::uint64_t mirror = centre >= x ? centre - x : centre + n_ - x;
    const auto coin = philox(key_, std::max(x, mirror), kCoin << 32 | static_cast<std::uint64_t>(round));
    if ((coin[0] & 1U) != 0) x = mirror;
  }
  return static_cast<std::int64_t>(x);
}

std::int64_t shuffled_index(std::uint64_t seed, std::int64_t epoch, std::int64_t index, std::int64_t n) {
  return Permutation(seed, epoch, n).at(index);
}

}  // namespace intarsia::data
