#include "intarsia/data/permutation.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

namespace intarsia::data {
namespace {

std::vector<std::int64_t> all(std::uint64_t seed, std::int64_t epoch, std::int64_t n) {
  const Permutation permutation(seed, epoch, n);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < n; ++i) order.push_back(permutation.at(i));
  return order;
}

TEST(Permutation, VisitsEachSampleOnce) {
  for (std::int64_t n = 1; n <= 130; ++n) {
    for (const std::int64_t epoch : {0, 1, 7}) {
      std::vector<bool> seen(static_cast<std::size_t>(n));
      for (const std::int64_t value : all(3, epoch, n)) {
        ASSERT_TRUE(value >= 0 && value < n) << n;
        ASSERT_FALSE(seen[static_cast<std::size_t>(value)]) << n;
        seen[static_cast<std::size_t>(value)] = true;
      }
    }
  }
  for (const std::int64_t n : {1000, 4096, 10007}) {
    const auto order = all(1, 0, n);
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), static_cast<std::size_t>(n));
  }
}

TEST(Permutation, TakesSizesThatNoListCouldHold) {
  const std::int64_t n = std::int64_t{1} << 62;
  const Permutation permutation(1, 0, n);
  std::set<std::int64_t> values;
  for (std::int64_t i = 0; i < 200; ++i) {
    const std::int64_t value = permutation.at(n - 1 - i);
    EXPECT_TRUE(value >= 0 && value < n);
    values.insert(value);
  }
  EXPECT_EQ(values.size(), 200U);
}

TEST(Permutation, DependsOnSeedAndEpochOnly) {
  EXPECT_EQ(all(5, 2, 100), all(5, 2, 100));
  EXPECT_NE(all(5, 2, 100), all(5, 3, 100));
  EXPECT_NE(all(5, 2, 100), all(6, 2, 100));
  EXPECT_EQ(shuffled_index(5, 2, 17, 100), all(5, 2, 100)[17]);
}

// The order of a run is part of what a resumed run relies on: it must not change between versions.
TEST(Permutation, KeepsItsOrderBetweenVersions) {
  EXPECT_EQ(all(42, 0, 10), (std::vector<std::int64_t>{1, 8, 5, 3, 6, 4, 0, 2, 9, 7}));
}

// All 24 orders of 4 samples come about equally often: chi-square with 23 degrees of freedom is below 49.7 with
// probability 0.999.
TEST(Permutation, FewSamplesTakeEveryOrderEquallyOften) {
  std::array<int, 256> counts{};
  const int trials = 4800;
  for (int epoch = 0; epoch < trials; ++epoch) {
    const auto order = all(9, epoch, 4);
    ++counts[static_cast<std::size_t>(order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3])];
  }
  double chi_square = 0;
  int kinds = 0;
  const double expected = trials / 24.0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++kinds;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_EQ(kinds, 24);
  EXPECT_LT(chi_square, 49.7);
}

// Of 1000 samples each tenth of the order holds about a tenth of each tenth of the data: chi-square with 81 degrees of
// freedom is below 127 with probability 0.999. Neighbours do not stay neighbours.
TEST(Permutation, ManySamplesAreSpreadOverTheEpoch) {
  std::array<int, 100> counts{};
  int neighbours = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    const auto order = all(11, epoch, 1000);
    for (std::size_t i = 0; i < order.size(); ++i) {
      ++counts[i / 100 * 10 + static_cast<std::size_t>(order[i] / 100)];
      if (i > 0 && (order[i] == order[i - 1] + 1 || order[i] == order[i - 1] - 1)) ++neighbours;
    }
  }
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi_square, 127);
  EXPECT_LT(neighbours, 80);  // 40 on average
}

}  // namespace
}  // namespace intarsia::data
