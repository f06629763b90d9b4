// Where parameters, gradients and optimizer state rest among the ranks: ZeRO's stages, FSDP's strategies, hpZ and MiCS
// are rows of one table.
#pragma once

#include <string>

#include "intarsia/plan/unit_layout.h"

namespace intarsia::plan {

// Data-parallel ranks form a grid of `replicas` rows: rank = replica * shards + shard. The ranks of a row (neighbours,
// so that they share a host where that is possible) are one shard group; the ranks of a column hold the same shard.
struct Grid {
  int shards = 1;
  int replicas = 1;

  int ranks() const { return shards * replicas; }
  int shard_of(int rank) const { return rank % shards; }
  int replica_of(int rank) const { return rank / shards; }
  // A flat buffer is cut into ranks() pieces. Each rank has one of its own; the pieces of a column lie together, so
  // that they are a shard.
  int piece_of(int rank) const { return shard_of(rank) * replicas + replica_of(rank); }
  int rank_of_piece(int piece) const { return piece % replicas * shards + piece / replicas; }
};

enum class Rest {
  kReplicated,  // whole on every rank
  kSharded,     // cut over the shard group, the same in every replica
  kSpread,      // cut over all ranks; with one replica the same as kSharded
};

struct Placement {
  Rest params = Rest::kReplicated;     // the copies that are computed with
  Rest grads = Rest::kReplicated;      // sums over micro-steps
  Rest optimizer = Rest::kReplicated;  // masters and optimizer state
  int replicas = 1;                    // shard groups
  bool keep_after_forward = false;     // gathered parameters stay until their backward (reshard_after_forward: false)
};

// Note: the table.
//   stage 0, NO_SHARD               parameters, gradients, optimizer: replicated
//   stage 1                         optimizer sharded
//   stage 2, SHARD_GRAD_OP          gradients and optimizer sharded
//   stage 3, FULL_SHARD             all three sharded
//   HYBRID_SHARD, MiCS              stage 3 in shard groups smaller than the world
//   _HYBRID_SHARD_ZERO2             stage 2 in shard groups
//   hpZ                             parameters sharded in a small group, gradients and optimizer spread over all ranks
//   no_sync                         any of these with gradients replicated: one reduction a window, not one a
//   micro-step
// Sources: ZeRO (arXiv 1910.02054), section 5; FSDP (arXiv 2304.11277), section 3.2; ZeRO++ (arXiv 2306.10209), section
// 4.2; MiCS (arXiv 2205.00119), section 3.2.
struct PlacementRequest {
  int stage = 0;
  int ranks = 1;
  int shard_ranks = 0;  // ranks of a shard group; 0: all of them
  int hpz_ranks = 0;    // ranks that hold one copy of the parameters between them; 0: no hpZ
  bool keep_after_forward = false;
  bool no_sync = false;  // gradients replicated until the window's end
};

// Errors: kConfig for another stage, a group that does not divide the ranks, or hpZ and smaller shard groups together.
Placement make_placement(const PlacementRequest& request);

// Stage 0: nothing sharded; 1: optimizer; 2: and gradients; 3: and parameters, over all ranks.
Placement placement_of_stage(int stage);

// The elements of `layout` that rest on `rank`.
Range resting(const FlatLayout& layout, Rest rest, const Grid& grid, int rank);

// How many ranks hold one copy of what rests so between them: 1, a shard group, or all.
int ranks_of_copy(Rest rest, const Grid& grid);

// "stage 3", "hybrid 2 x 4 (stage 3 in groups of 4)", "hpZ 2 x 4 ...".
std::string describe(const Placement& placement, int stage, const Grid& grid);

// Which logical micro-batch a rank runs in a micro-step of a window, such that in every layout the sums over ranks and
// micro-steps are parts of one balanced binary tree. Needs powers of two. Source: docs/decisions/reproducible.md.
struct LogicalOrder {
  Grid grid;
  Rest grads = Rest::kReplicated;
  std::int64_t steps = 1;  // micro-steps of a rank in a full window

  std::int64_t count() const { return steps * grid.ranks(); }
  std::int64_t index(int rank, std::int64_t step) const;
};

}  // namespace intarsia::plan
