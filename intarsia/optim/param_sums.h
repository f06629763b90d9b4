// Sums over whole parameters whose bits do not depend on how the parameters are cut.
#pragma once

#include <array>
#include <vector>

#include "intarsia/comm/communicator.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::optim {

// Two sums for each parameter, in double. Both are added up from the sums of blocks, the block being what a parameter
// has of plan::kShardBlock elements of its flat buffer: shard borders are multiples of it, so every block lies on one
// rank, and blocks are added in their order over all ranks.
class ParamSums {
 public:
  // `axis`: the ranks that hold one copy of the optimizer's state between them. `sharded`: each fills the blocks of
  // what it holds; else every rank fills all and nothing is exchanged.
  ParamSums(const plan::RunPlan& plan, comm::Communicator& axis, bool sharded);

  using Pair = std::array<double, 2>;
  // The blocks of one slot that this rank fills, in order; the first one begins at or before its first element.
  Pair* blocks(std::size_t flat, std::size_t slot) { return own_.data() + own_begin_[flat][slot]; }

  // The sums, by index into ModelSpec::params. Collective over `axis` when sharded: one all_gather.
  // Memory: 16 bytes a block of every rank.
  std::vector<Pair> add_up(const char* what);

 private:
  const plan::RunPlan& plan_;
  comm::Communicator& axis_;
  bool sharded_;
  std::int64_t entries_ = 0;                         // of the rank that has most
  std::vector<std::vector<std::size_t>> own_begin_;  // by flat buffer and slot
  std::vector<Pair> own_;                            // [entries_]
};

}  // namespace intarsia::optim
