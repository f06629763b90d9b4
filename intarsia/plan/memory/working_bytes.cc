#include "intarsia/plan/memory/working_bytes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "intarsia/plan/optimizer_states.h"

namespace intarsia::plan {
namespace {

constexpr std::int64_t kAlignment = 64;  // of a tensor's bytes in a checkpoint's copy

int ranks_of_state(const RunPlan& plan) { return ranks_of_copy(plan.placement.optimizer, plan.grid()); }

// What `rank` of them has of a slot.
Range updated_by(const RunPlan& plan, const FlatLayout& layout, const ParamSlot& slot, int rank) {
  return param_range(slot, resting(layout, plan.placement.optimizer, plan.grid(), rank));
}

// What the owner's transform of a whole matrix takes beside it, fp32.
std::int64_t transform_numel(const RunPlan& plan, const ParamSpec& param) {
  const std::int64_t numel = param.numel();
  if (plan.optimizer.kind == OptimizerKind::kAdafactor) return numel;  // the direction
  const std::int64_t rows = param.shape[0], least = std::min(rows, numel / rows);
  return 2 * numel + 2 * least * least;  // the iterate and the next one; its square and that one's polynomial
}

struct Place {
  const FlatLayout* layout;
  const ParamSlot* slot;
};

// optim::MatrixExchange: rounds of one matrix of each owner, by falling size.
std::int64_t exchange_numel(const RunPlan& plan) {
  const std::vector<int> owners = matrix_owners(plan);
  std::vector<std::vector<Place>> by_owner(static_cast<std::size_t>(ranks_of_state(plan)));
  for (const FlatLayout& layout : plan.flats)
    for (const ParamSlot& slot : layout.slots) {
      const int owner = owners[static_cast<std::size_t>(slot.param)];
      if (owner >= 0) by_owner[by_owner.size() > 1 ? static_cast<std::size_t>(owner) : 0].push_back({&layout, &slot});
    }
  std::size_t rounds = 0;
  for (std::vector<Place>& places : by_owner) {
    std::ranges::stable_sort(places, std::greater<>(), [](const Place& place) { return place.slot->numel; });
    rounds = std::max(rounds, places.size());
  }
  std::int64_t most = 0;
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < by_owner.size(); ++rank) {
      std::int64_t numel = 0;
      for (std::size_t owner = 0; owner < by_owner.size(); ++owner) {
        if (by_owner[owner].size() <= round) continue;
        const auto [layout, slot] = by_owner[owner][round];
        if (owner != rank) {
          numel += updated_by(plan, *layout, *slot, static_cast<int>(rank)).size();
        } else {
          numel += slot->numel + transform_numel(plan, plan.model.params[static_cast<std::size_t>(slot->param)]);
        }
      }
      most = std::max(most, numel);
    }
  return most;
}

// optim::ParamSums: two doubles for each block of every rank, gathered.
std::int64_t sums_bytes(const RunPlan& plan) {
  const int ranks = ranks_of_state(plan);
  if (ranks == 1) return 0;
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t entries = 0;
    for (const FlatLayout& layout : plan.flats) {
      if (!layout.trainable) continue;
      for (const ParamSlot& slot : layout.slots) {
        const Range elements = updated_by(plan, layout, slot, rank);
        if (elements.size() == 0) continue;
        entries += (slot.offset + elements.end - 1) / kShardBlock - (slot.offset + elements.begin) / kShardBlock + 1;
      }
    }
    most = std::max(most, entries);
  }
  return 16 * ranks * most;
}

}  // namespace

std::int64_t optimizer_working_bytes(const RunPlan& plan) {
  switch (plan.optimizer.kind) {
    case OptimizerKind::kMuon:
      return 4 * exchange_numel(plan);
    case OptimizerKind::kAdafactor:  // the sums are gone when matrices are exchanged
      return std::max(4 * exchange_numel(plan), sums_bytes(plan));
    case OptimizerKind::kLamb:
      return sums_bytes(plan);
    default:
      return 0;
  }
}

std::int64_t snapshot_bytes(const RunPlan& plan) {
  const std::vector<int> owners = matrix_owners(plan);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(plan.ranks), 0);
  const auto add = [&](int rank, std::int64_t numel, DType dtype) {
    const std::int64_t size = numel * static_cast<std::int64_t>(dtype_size(dtype));
    bytes[static_cast<std::size_t>(rank)] += (size + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (const FlatLayout& layout : plan.flats)
    for (const ParamSlot& slot : layout.slots) {
      const auto index = static_cast<std::size_t>(slot.param);
      const std::vector<StateSpec> specs = state_specs(plan.optimizer, plan.model.params[index]);
      for (int piece = 0; piece < layout.num_shards; ++piece) {
        const std::int64_t numel = param_range(slot, layout.shard(piece)).size();
        const int rank = plan.grid().rank_of_piece(piece);
        add(rank, numel, layout.trainable ? plan.master_dtype : plan.compute_dtype);
        for (const StateSpec& spec : specs)
          if (!spec.owned) add(rank, numel, spec.dtype);
      }
      for (const StateSpec& spec : specs)
        if (spec.owned)
          add(owners[index], std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1}, std::multiplies{}),
              spec.dtype);
    }
  return *std::ranges::max_element(bytes);
}

}  // namespace intarsia::plan
