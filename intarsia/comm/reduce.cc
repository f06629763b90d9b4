#include "intarsia/comm/reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace intarsia::comm {
namespace {

// Elements at a time: partial sums stay in the core's cache, and ATen does not split the work over threads.
constexpr std::int64_t kBlock = 8192;
constexpr std::size_t kLevels = 11;  // of the tree over 1024 ranks

at::Tensor view(const void* data, std::int64_t count, c10::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(data), {count}, at::TensorOptions().dtype(dtype));
}

void combine(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    at::add_out(out, a, b);
  } else {
    at::maximum_out(out, a, b);
  }
}

// One block. partial[k] is the result over an aligned block of 2^k sources: a binary counter over the sources.
void reduce_block(at::Tensor out, const std::vector<at::Tensor>& sources, std::byte* scratch, ReduceOp op) {
  const std::int64_t bytes = static_cast<std::int64_t>(out.nbytes());
  std::array<at::Tensor, kLevels> partial;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto level = static_cast<std::size_t>(std::countr_one(i));
    at::Tensor value = sources[i];
    for (std::size_t below = 0; below < level; ++below) {
      at::Tensor merged = view(scratch + static_cast<std::int64_t>(level) * kBlock * 8, out.numel(), out.scalar_type());
      combine(merged, partial[below], value, op);
      value = merged;
    }
    partial[level] = value;
  }
  at::Tensor total;
  for (std::size_t level = 0; level < kLevels; ++level) {
    if ((sources.size() >> level & 1) == 0) continue;
    if (!total.defined()) {
      total = partial[level];
    } else {
      at::Tensor merged = view(scratch, out.numel(), out.scalar_type());
      combine(merged, partial[level], total, op);
      total = merged;
    }
  }
  std::memcpy(out.data_ptr(), total.data_ptr(), static_cast<std::size_t>(bytes));
}

}  // namespace

void reduce_in_order(void* dst, const std::vector<const void*>& sources, std::int64_t count, c10::ScalarType dtype,
                     ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto item = static_cast<std::int64_t>(c10::elementSize(dtype));
  if (sources.size() == 1) {
    if (dst != sources[0] && count > 0) std::memcpy(dst, sources[0], static_cast<std::size_t>(count * item));
    return;
  }
  alignas(64) thread_local std::byte scratch[kLevels * kBlock * 8];
  std::vector<at::Tensor> views(sources.size());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    for (std::size_t i = 0; i < sources.size(); ++i)
      views[i] = view(static_cast<const std::byte*>(sources[i]) + begin * item, length, dtype);
    at::Tensor out = view(static_cast<std::byte*>(dst) + begin * item, length, dtype);
    if (sources.size() == 2) {
      combine(out, views[0], views[1], op);
    } else {
      reduce_block(out, views, scratch, op);
    }
  }
}

}  // namespace intarsia::comm
