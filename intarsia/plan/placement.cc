#include "intarsia/plan/placement.h"

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

void check_group(const char* what, int group, int ranks) {
  INTARSIA_CHECK(kConfig, group > 0 && group <= ranks && ranks % group == 0, what, " is ", group,
                 ", which does not divide the ", ranks, " ranks into equal groups");
}

}  // namespace

Placement placement_of_stage(int stage) {
  INTARSIA_CHECK(kConfig, stage >= 0 && stage <= 3, "zero_optimization.stage is ", stage, "; allowed: 0, 1, 2, 3");
  const auto rest = [stage](int from) { return stage >= from ? Rest::kSharded : Rest::kReplicated; };
  return {.params = rest(3), .grads = rest(2), .optimizer = rest(1)};
}

Placement make_placement(const PlacementRequest& request) {
  Placement placement = placement_of_stage(request.stage);
  placement.keep_after_forward = request.keep_after_forward;
  INTARSIA_CHECK(kConfig, request.hpz_ranks == 0 || request.shard_ranks == 0 || request.shard_ranks == request.ranks,
                 "zero_hpz_partition_size ", request.hpz_ranks, " and shard groups of ", request.shard_ranks,
                 " ranks are two ways to keep parameters near; keep one");
  if (request.hpz_ranks > 0) {
    check_group("zero_optimization.zero_hpz_partition_size", request.hpz_ranks, request.ranks);
    INTARSIA_CHECK(kConfig, request.stage == 3, "zero_optimization.zero_hpz_partition_size is ", request.hpz_ranks,
                   ": a second copy of sharded parameters needs stage 3, not ", request.stage);
    placement.replicas = request.ranks / request.hpz_ranks;
    placement.grads = placement.optimizer = Rest::kSpread;
  } else if (request.shard_ranks > 0) {
    check_group("the shard group", request.shard_ranks, request.ranks);
    placement.replicas = request.ranks / request.shard_ranks;
  }
  if (request.no_sync) placement.grads = Rest::kReplicated;
  return placement;
}

Range resting(const FlatLayout& layout, Rest rest, const Grid& grid, int rank) {
  if (rest == Rest::kReplicated) return {0, layout.flat_numel()};
  if (rest == Rest::kSpread) return layout.shard(grid.piece_of(rank));
  const int first = grid.shard_of(rank) * grid.replicas;
  return {layout.shard(first).begin, layout.shard(first + grid.replicas - 1).end};
}

int ranks_of_copy(Rest rest, const Grid& grid) {
  if (rest == Rest::kReplicated) return 1;
  return rest == Rest::kSharded ? grid.shards : grid.ranks();
}

std::string describe(const Placement& placement, int stage, const Grid& grid) {
  const char* no_sync = stage >= 2 && placement.grads == Rest::kReplicated ? ", gradients reduced once an update" : "";
  if (placement.replicas == 1) return concat("stage ", stage, no_sync);
  const char* name = placement.optimizer == Rest::kSpread && placement.params == Rest::kSharded ? "hpZ" : "hybrid";
  return concat(name, " ", grid.replicas, " x ", grid.shards, " (stage ", stage, ", groups of ", grid.shards, " ranks)",
                no_sync);
}

std::int64_t LogicalOrder::index(int rank, std::int64_t step) const {
  switch (grads) {
    case Rest::kReplicated:  // a rank sums its own block first
      return rank * steps + step;
    case Rest::kSharded:  // a shard group reduces each micro-step; replicas are summed last
      return (grid.replica_of(rank) * steps + step) * grid.shards + grid.shard_of(rank);
    case Rest::kSpread:  // all ranks reduce each micro-step
      return step * grid.ranks() + rank;
  }
  return 0;
}

}  // namespace intarsia::plan
