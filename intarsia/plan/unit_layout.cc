#include "intarsia/plan/unit_layout.h"

#include <algorithm>

namespace intarsia::plan {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<FlatLayout> layout_units(const ModelSpec& model, int num_shards) {
  std::vector<FlatLayout> layouts;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    for (const bool trainable : {true, false}) {
      FlatLayout layout;
      layout.name = model.units[unit].name + (trainable ? "" : " (frozen)");
      layout.unit = static_cast<int>(unit);
      layout.trainable = trainable;
      layout.num_shards = num_shards;
      std::int64_t end = 0;
      for (const int index : model.units[unit].params) {
        const ParamSpec& param = model.params[static_cast<std::size_t>(index)];
        if (param.frozen == trainable) continue;
        layout.slots.push_back({index, end, param.numel()});
        end = round_up(end + param.numel(), kSlotAlignment);
      }
      if (layout.slots.empty()) continue;
      layout.shard_numel = round_up((end + num_shards - 1) / num_shards, kShardBlock);
      layouts.push_back(std::move(layout));
    }
  }
  return layouts;
}

Range param_range(const ParamSlot& slot, Range range) {
  const std::int64_t begin = std::max(slot.offset, range.begin);
  const std::int64_t end = std::min(slot.offset + slot.numel, range.end);
  if (begin >= end) return {0, 0};
  return {begin - slot.offset, end - slot.offset};
}

}  // namespace intarsia::plan
