#include "intarsia/shard/gather_ring.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {

GatherRing::GatherRing(std::int64_t numel, const at::TensorOptions& options, int slots)
    : numel_(numel), options_(options) {
  for (int slot = 0; slot < slots; ++slot) grow();
}

void GatherRing::grow() {
  const tensor::MemoryScope scope(tensor::MemoryCategory::kGathered);
  slots_.push_back(at::zeros({numel_}, options_));
  taken_.push_back(false);
}

int GatherRing::borrow() {
  auto free = std::ranges::find(taken_, false);
  if (free == taken_.end()) {
    grow();
    free = taken_.end() - 1;
  }
  *free = true;
  return static_cast<int>(free - taken_.begin());
}

void GatherRing::give_back(int slot) { taken_[static_cast<std::size_t>(slot)] = false; }

}  // namespace intarsia::shard
