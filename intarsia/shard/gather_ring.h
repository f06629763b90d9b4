// Slots for gathered units, allocated once: a gather takes no memory from the allocator.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace intarsia::shard {

// Note: who frees the gathered buffer. Nobody: the ring owns its slots for the engine's life; a unit borrows one from
// its pre-forward or pre-backward until it is released.
class GatherRing {
 public:
  GatherRing() = default;
  // `numel` elements of `type` a slot. Memory: slots * numel, category "gathered".
  GatherRing(int slots, std::int64_t numel, at::ScalarType type);

  // A free slot's index. Errors: kInternal when more units are held at once than there are slots.
  int borrow();
  void give_back(int slot);
  const at::Tensor& slot(int index) const { return slots_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<at::Tensor> slots_;
  std::vector<bool> taken_;
};

}  // namespace intarsia::shard
