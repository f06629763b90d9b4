// The sum of reduce.h over tensors, wherever they lie. Header only: the CUDA plugin links nothing of Intarsia.
#pragma once

#include <ATen/ATen.h>

#include <bit>
#include <vector>

#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

// The balanced binary tree over the rows of pieces [ranks, n], in their order, each node rounded to the dtype: the bits
// of reduce_in_order(). Shape: [n]. Memory: one row for each level.
inline at::Tensor reduce_rows_in_order(const at::Tensor& pieces, ReduceOp op) {
  const auto combine = [op](const at::Tensor& a, const at::Tensor& b) {
    return op == ReduceOp::kSum ? at::add(a, b) : at::maximum(a, b);
  };
  const auto rows = static_cast<std::uint64_t>(pieces.size(0));
  std::vector<at::Tensor> partial;  // [level]: the result over an aligned block of 2^level rows
  for (std::uint64_t row = 0; row < rows; ++row) {
    at::Tensor value = pieces.select(0, static_cast<std::int64_t>(row));
    const auto level = static_cast<std::size_t>(std::countr_one(row));
    for (std::size_t below = 0; below < level; ++below) value = combine(partial[below], value);
    if (partial.size() <= level) partial.resize(level + 1);
    partial[level] = value;
  }
  at::Tensor total;
  for (std::size_t level = 0; level < partial.size(); ++level)
    if ((rows >> level & 1) != 0) total = total.defined() ? combine(partial[level], total) : partial[level];
  return total;
}

}  // namespace intarsia::comm
