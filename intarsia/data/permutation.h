// The order in which an epoch visits the samples: a seeded permutation that needs no list.
#pragma once

#include <array>
#include <cstdint>

namespace intarsia::data {

// A permutation of [0, n), a pure function of (seed, epoch, n): every rank computes any element by itself, and a
// resumed run needs no state for it. Invariant: index -> at(index) is one to one for every n above 0.
// Memory: half a kilobyte, whatever n is.
// Source: Hoang, Morris, Rogaway, "An enciphering scheme based on a card shuffle", CRYPTO 2012 (swap-or-not), with
// Philox as the round function. It serves any n without cycle walking.
class Permutation {
 public:
  // Errors: kInternal unless n is above 0.
  Permutation(std::uint64_t seed, std::int64_t epoch, std::int64_t n);

  // Where `index` goes; about two microseconds. Errors: kInternal unless 0 <= index < n.
  std::int64_t at(std::int64_t index) const;

 private:
  static constexpr int kRounds = 64;
  std::uint64_t key_;
  std::uint64_t n_;
  std::array<std::uint64_t, kRounds> centres_;
};

// Permutation(seed, epoch, n).at(index).
std::int64_t shuffled_index(std::uint64_t seed, std::int64_t epoch, std::int64_t index, std::int64_t n);

}  // namespace intarsia::data
