// A balanced binary tree of sums over micro-steps, built like a binary counter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace intarsia::shard {

// Adds values 0, 1, 2, ... of equal shape such that every partial sum is a node of the balanced binary tree over them,
// whatever the number of ranks that share the tree's lower or upper levels.
// Note: why the bits agree. After step s the values 0..s are held as one sum for each 1 bit of s + 1, each over an
// aligned block; a new value is merged with the sums of its trailing 1 bits. IEEE addition commutes, so only this
// association matters. Memory: log2(steps) tensors beside the result. Source: docs/decisions/reproducible.md.
class TreeSum {
 public:
  // `result` receives the sum of all `steps` values, a power of two. Memory: category "gradients".
  TreeSum(const at::Tensor& result, std::int64_t steps);

  // Where to put value `step` before settle(step).
  const at::Tensor& place(std::int64_t step) const;
  void settle(std::int64_t step);

 private:
  std::vector<at::Tensor> levels_;  // levels_[k]: the sum of an aligned block of 2^k values; the last is the result
};

}  // namespace intarsia::shard
