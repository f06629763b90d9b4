#include "intarsia/launch/bind.h"

#include <gtest/gtest.h>

#include "intarsia/base/error.h"

namespace intarsia::launch {
namespace {

using Lists = std::vector<std::vector<int>>;

TEST(Bind, DividesCoresEvenlyWithSiblingsTogether) {
  const Cores cores{{0, 4, 1, 5, 2, 6}, {{0, 4, 1}, {5, 2, 6}}};
  EXPECT_EQ(divide_cores(cores, 3, Bind::kCores), (Lists{{0, 4}, {1, 5}, {2, 6}}));
  EXPECT_EQ(divide_cores(cores, 4, Bind::kCores), (Lists{{0}, {4, 1}, {5}, {2, 6}}));
}

TEST(Bind, NumaGivesWholeNodes) {
  const Cores cores{{0, 1, 2, 3}, {{0, 1}, {2, 3}}};
  EXPECT_EQ(divide_cores(cores, 4, Bind::kNuma), (Lists{{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
}

TEST(Bind, MoreRanksThanCoresAreNotBound) {
  const Cores cores{{0, 1}, {{0, 1}}};
  EXPECT_EQ(divide_cores(cores, 3, Bind::kCores), Lists(3));
  EXPECT_EQ(divide_cores(cores, 2, Bind::kNone), Lists(2));
  EXPECT_THROW(divide_cores(cores, 0, Bind::kNone), Error);
  EXPECT_THROW(divide_cores(cores, -1, Bind::kCores), Error);
}

TEST(Bind, ReadsThisHost) {
  const Cores cores = read_cores();
  EXPECT_FALSE(cores.all.empty());
  EXPECT_FALSE(cores.by_node.empty());
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
}

TEST(Bind, RefusesUnknownWords) {
  EXPECT_EQ(parse_bind("numa"), Bind::kNuma);
  EXPECT_THROW(parse_bind("sockets"), Error);
}

}  // namespace
}  // namespace intarsia::launch
