// Where each parameter lies in its unit's flat buffers, and where each rank's shard begins and ends. Every rank, the
// planner and the checkpoint compute the same layout from the same ModelSpec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/plan/model_spec.h"

namespace intarsia::plan {

// Offsets of parameters are multiples of this many elements: 64 bytes for the smallest compute type (2 bytes).
inline constexpr std::int64_t kSlotAlignment = 32;
// Shard borders are multiples of this many elements.
inline constexpr std::int64_t kShardBlock = 1024;

struct ParamSlot {
  int param = 0;  // index into ModelSpec::params
  std::int64_t offset = 0;
  std::int64_t numel = 0;
};

// Half-open range of elements [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

// One flat buffer: parameters one after another, padded, cut into num_shards shards of equal size. A unit has one for
// its trainable and one for its frozen parameters (either may be absent), so that frozen ones cost no gradient memory.
struct FlatLayout {
  std::string name;  // "model.layers.3" or "model.layers.3 (frozen)"
  int unit = 0;
  bool trainable = true;
  std::vector<ParamSlot> slots;  // in offset order
  std::int64_t shard_numel = 0;  // multiple of kShardBlock (0 when there are no elements)
  int num_shards = 1;

  std::int64_t flat_numel() const { return shard_numel * num_shards; }  // with the padding
  Range shard(int index) const { return {shard_numel * index, shard_numel * (index + 1)}; }
};

// The layouts of all flat buffers, in unit order, trainable before frozen within a unit.
std::vector<FlatLayout> layout_units(const ModelSpec& model, int num_shards);

// The part of `slot` that lies in `range`, as a range of the parameter's own elements; empty when they do not meet.
Range param_range(const ParamSlot& slot, Range range);

}  // namespace intarsia::plan
