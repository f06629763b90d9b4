#include "intarsia/plan/weight_source.h"

#include <gtest/gtest.h>

#include <vector>

namespace intarsia::plan {
namespace {

TEST(RandomWeights, AnyPieceHasTheBitsOfTheWhole) {
  const ParamSpec param{.name = "w", .shape = {31, 7}, .init_std = 0.02};
  const RandomWeights weights(7);
  std::vector<float> whole(217);
  weights.read(param, {0, 217}, whole.data());
  for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 2}, std::pair{3, 100}, std::pair{100, 217}}) {
    std::vector<float> piece(static_cast<std::size_t>(end - begin));
    weights.read(param, {begin, end}, piece.data());
    EXPECT_EQ(piece, std::vector<float>(whole.begin() + begin, whole.begin() + end)) << begin << " to " << end;
  }
}

TEST(RandomWeights, NameAndSeedDecideTheBitsAndNormsAreOnes) {
  const auto first = [](const char* name, std::uint64_t seed, Init init) {
    float value = 0;
    RandomWeights(seed).read({.name = name, .shape = {4}, .init = init}, {0, 1}, &value);
    return value;
  };
  EXPECT_NE(first("a", 1, Init::kNormal), first("b", 1, Init::kNormal));
  EXPECT_NE(first("a", 1, Init::kNormal), first("a", 2, Init::kNormal));
  EXPECT_EQ(first("a", 1, Init::kOnes), 1);
}

}  // namespace
}  // namespace intarsia::plan
