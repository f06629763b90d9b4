#include "intarsia/shard/gather_ring.h"

#include <ATen/ATen.h>

#include "intarsia/base/error.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {

GatherRing::GatherRing(int slots, std::int64_t numel, at::ScalarType type) {
  const tensor::MemoryScope scope(tensor::MemoryCategory::kGathered);
  for (int i = 0; i < slots; ++i) slots_.push_back(at::zeros({numel}, at::TensorOptions().dtype(type)));
  taken_.resize(slots_.size(), false);
}

int GatherRing::borrow() {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    taken_[i] = true;
    return static_cast<int>(i);
  }
  fail(ErrorKind::kInternal, "all ", taken_.size(), " slots for gathered units are in use");
}

void GatherRing::give_back(int slot) { taken_[static_cast<std::size_t>(slot)] = false; }

}  // namespace intarsia::shard
