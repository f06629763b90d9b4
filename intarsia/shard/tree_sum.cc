#include "intarsia/shard/tree_sum.h"

#include <ATen/ATen.h>

#include <bit>

#include "intarsia/base/error.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

// The level at which value `step` comes to rest: the number of sums that it is merged with.
std::size_t level_of(std::int64_t step) {
  return static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(step)));
}

}  // namespace

TreeSum::TreeSum(const at::Tensor& result, std::int64_t steps) {
  INTARSIA_INVARIANT(std::has_single_bit(static_cast<std::uint64_t>(steps)), "a tree of ", steps, " micro-steps");
  const tensor::MemoryScope scope(tensor::MemoryCategory::kGradients);
  for (std::int64_t block = 1; block < steps; block *= 2) levels_.push_back(at::zeros_like(result));
  levels_.push_back(result);
}

const at::Tensor& TreeSum::place(std::int64_t step) const { return levels_[level_of(step)]; }

void TreeSum::settle(std::int64_t step) {
  at::Tensor& sum = levels_[level_of(step)];
  for (std::size_t level = 0; level < level_of(step); ++level) sum.add_(levels_[level]);
}

}  // namespace intarsia::shard
