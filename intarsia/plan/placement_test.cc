#include "intarsia/plan/placement.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

TEST(Grid, PiecesAreAPermutationOfRanks) {
  for (const Grid grid : {Grid{4, 1}, Grid{2, 3}, Grid{1, 4}, Grid{4, 2}}) {
    std::set<int> pieces;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      pieces.insert(grid.piece_of(rank));
      EXPECT_EQ(grid.rank_of_piece(grid.piece_of(rank)), rank);
    }
    EXPECT_EQ(static_cast<int>(pieces.size()), grid.ranks());
  }
}

TEST(Placement, EveryRestCutsTheWholeBufferWithoutGaps) {
  FlatLayout layout;
  layout.shard_numel = kShardBlock;
  layout.num_shards = 8;
  const Grid grid{.shards = 4, .replicas = 2};
  for (int rank = 0; rank < 8; ++rank) {
    const Range own = resting(layout, Rest::kSpread, grid, rank), shard = resting(layout, Rest::kSharded, grid, rank);
    EXPECT_EQ(resting(layout, Rest::kReplicated, grid, rank).size(), 8 * kShardBlock);
    EXPECT_EQ(shard.size(), 2 * kShardBlock);
    EXPECT_EQ(own.size(), kShardBlock);
    EXPECT_TRUE(own.begin >= shard.begin && own.end <= shard.end) << "a rank's piece lies in its shard";
    EXPECT_EQ(shard.begin, resting(layout, Rest::kSharded, grid, (rank + 4) % 8).begin) << "replicas agree";
  }
}

TEST(Placement, RowsOfTheTable) {
  const Placement hybrid = make_placement({.stage = 3, .ranks = 8, .shard_ranks = 4});
  EXPECT_EQ(hybrid.replicas, 2);
  EXPECT_EQ(hybrid.optimizer, Rest::kSharded);
  const Placement hpz = make_placement({.stage = 3, .ranks = 8, .hpz_ranks = 2});
  EXPECT_EQ(hpz.replicas, 4);
  EXPECT_EQ(hpz.params, Rest::kSharded);
  EXPECT_EQ(hpz.optimizer, Rest::kSpread);
  EXPECT_EQ(describe(hpz, 3, {.shards = 2, .replicas = 4}), "hpZ 4 x 2 (stage 3, groups of 2 ranks)");
}

TEST(Placement, ImpossibleGroupsAreRefused) {
  EXPECT_THROW(make_placement({.stage = 4, .ranks = 4}), Error);
  EXPECT_THROW(make_placement({.stage = 3, .ranks = 4, .shard_ranks = 3}), Error);
  EXPECT_THROW(make_placement({.stage = 3, .ranks = 4, .shard_ranks = 8}), Error);
  EXPECT_THROW(make_placement({.stage = 2, .ranks = 4, .hpz_ranks = 2}), Error);
  EXPECT_THROW(make_placement({.stage = 3, .ranks = 4, .shard_ranks = 2, .hpz_ranks = 2}), Error);
}

// A sum written out. IEEE addition commutes, so operands are put in one order; only the association shows.
std::string add(const std::string& a, const std::string& b) {
  return "(" + std::min(a, b) + "+" + std::max(a, b) + ")";
}

// The balanced tree over values in their order, built like a binary counter.
std::string tree(const std::vector<std::string>& values) {
  std::vector<std::string> levels(20);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string sum = values[i];
    const auto level = static_cast<std::size_t>(std::countr_one(i));
    for (std::size_t below = 0; below < level; ++below) sum = add(levels[below], sum);
    levels[level] = sum;
  }
  return levels[static_cast<std::size_t>(std::countr_zero(values.size()))];
}

// What a layout adds up, by the rules of shard::Reducer.
std::string sum_of_layout(const LogicalOrder& order) {
  const Grid& grid = order.grid;
  const auto leaf = [&](int rank, std::int64_t step) { return std::to_string(1000 + order.index(rank, step)); };
  const auto over = [](int count, const auto& value) {
    std::vector<std::string> values;
    for (int i = 0; i < count; ++i) values.push_back(value(i));
    return tree(values);
  };
  const auto steps = static_cast<int>(order.steps);
  const auto rank_at = [&](int replica, int shard) { return replica * grid.shards + shard; };
  if (order.grads == Rest::kReplicated)
    return over(grid.replicas, [&](int g) {
      return over(grid.shards, [&](int s) { return over(steps, [&](int m) { return leaf(rank_at(g, s), m); }); });
    });
  if (order.grads == Rest::kSharded)
    return over(grid.replicas, [&](int g) {
      return over(steps, [&](int m) { return over(grid.shards, [&](int s) { return leaf(rank_at(g, s), m); }); });
    });
  return over(steps, [&](int m) {
    return over(grid.replicas, [&](int g) { return over(grid.shards, [&](int s) { return leaf(rank_at(g, s), m); }); });
  });
}

TEST(LogicalOrder, EveryLayoutBuildsTheSameTree) {
  constexpr int kLogical = 16;
  const std::string expected = sum_of_layout({.grid = {}, .grads = Rest::kReplicated, .steps = kLogical});
  for (const Rest grads : {Rest::kReplicated, Rest::kSharded, Rest::kSpread})
    for (int shards = 1; shards <= kLogical; shards *= 2)
      for (int replicas = 1; shards * replicas <= kLogical; replicas *= 2)
        EXPECT_EQ(sum_of_layout({.grid = {.shards = shards, .replicas = replicas},
                                 .grads = grads,
                                 .steps = kLogical / (shards * replicas)}),
                  expected)
            << shards << " shards, " << replicas << " replicas";
}

}  // namespace
}  // namespace intarsia::plan
