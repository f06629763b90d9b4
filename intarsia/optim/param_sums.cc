#include "intarsia/optim/param_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace intarsia::optim {
namespace {

// Blocks of the flat buffer that one slot touches within `range`.
std::size_t count_blocks(const plan::ParamSlot& slot, plan::Range range) {
  const plan::Range elements = plan::param_range(slot, range);
  if (elements.size() == 0) return 0;
  const std::int64_t first = (slot.offset + elements.begin) / plan::kShardBlock;
  const std::int64_t last = (slot.offset + elements.end - 1) / plan::kShardBlock;
  return static_cast<std::size_t>(last - first + 1);
}

}  // namespace

ParamSums::ParamSums(const plan::RunPlan& plan, comm::Communicator& axis, bool sharded)
    : plan_(plan), axis_(axis), sharded_(sharded) {
  for (int shard = 0; shard < (sharded ? axis.size() : 1); ++shard) {
    std::vector<std::vector<std::size_t>> begins;
    std::size_t entries = 0;
    for (const plan::FlatLayout& layout : plan.flats) {
      std::vector<std::size_t>& slots = begins.emplace_back();
      if (!layout.trainable) continue;
      const plan::Range range = plan::resting(layout, plan.placement.optimizer, plan.grid(), shard);
      for (const plan::ParamSlot& slot : layout.slots) {
        slots.push_back(entries);
        entries += count_blocks(slot, range);
      }
    }
    entries_ = std::max(entries_, static_cast<std::int64_t>(entries));
    if (!sharded || shard == axis.rank()) own_begin_ = std::move(begins);
  }
  own_.resize(static_cast<std::size_t>(entries_));
}

std::vector<ParamSums::Pair> ParamSums::add_up(const char* what) {
  const int ranks = sharded_ ? axis_.size() : 1;
  at::Tensor all;
  const Pair* blocks = own_.data();
  if (sharded_) {
    all = at::empty({ranks * entries_ * 2}, at::kDouble);
    axis_.all_gather(all, at::from_blob(own_.data(), {entries_ * 2}, at::kDouble), {"", what})->wait();
    blocks = static_cast<const Pair*>(all.const_data_ptr());
  }
  std::vector<Pair> sums(plan_.model.params.size(), Pair{});
  const bool spread = sharded_ && plan_.placement.optimizer == plan::Rest::kSpread;
  for (int piece = 0; piece < ranks; ++piece) {  // in the order of the flat buffers
    const int rank = spread ? plan_.grid().rank_of_piece(piece) : piece;
    const Pair* next = blocks + rank * entries_;
    for (const plan::FlatLayout& layout : plan_.flats) {
      if (!layout.trainable) continue;
      const plan::Range range = plan::resting(layout, plan_.placement.optimizer, plan_.grid(), rank);
      for (const plan::ParamSlot& slot : layout.slots) {
        Pair& sum = sums[static_cast<std::size_t>(slot.param)];
        for (std::size_t left = count_blocks(slot, range); left > 0; --left, ++next) {
          sum[0] += (*next)[0];
          sum[1] += (*next)[1];
        }
      }
    }
  }
  return sums;
}

}  // namespace intarsia::optim
