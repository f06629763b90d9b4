// Slots for gathered units, allocated once: a gather takes no memory from the allocator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <vector>

namespace intarsia::shard {

// Note: who frees the gathered buffer. Nobody: the ring owns its slots for the engine's life; a unit borrows one from
// its pre-forward or pre-backward until it is released.
class GatherRing {
 public:
  GatherRing() = default;
  // Slots of `numel` elements with these options (dtype, device). Memory: `slots` slots, category "gathered"; one more
  // for each unit that is held while others are (units inside units).
  GatherRing(std::int64_t numel, const at::TensorOptions& options, int slots);

  // A free slot's index.
  int borrow();
  void give_back(int slot);
  const at::Tensor& slot(int index) const { return slots_[static_cast<std::size_t>(index)]; }

 private:
  void grow();

  std::int64_t numel_ = 0;
  at::TensorOptions options_;
  std::vector<at::Tensor> slots_;
  std::vector<bool> taken_;
};

}  // namespace intarsia::shard
