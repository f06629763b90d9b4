#include "intarsia/comm/reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace intarsia::comm {
namespace {

// Elements at a time: partial sums stay in the core's cache, and ATen does not split the work over threads.
constexpr std::int64_t kBlock = 16384;

at::Tensor view(const void* data, std::int64_t count, c10::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(data), {count}, at::TensorOptions().dtype(dtype));
}

}  // namespace

void reduce_in_order(void* dst, const std::vector<const void*>& sources, std::int64_t count, c10::ScalarType dtype,
                     ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto item = static_cast<std::int64_t>(c10::elementSize(dtype));
  alignas(64) thread_local std::byte scratch[kBlock * 8];
  if (sources.size() == 1) {
    if (dst != sources[0] && count > 0) std::memcpy(dst, sources[0], static_cast<std::size_t>(count * item));
    return;
  }
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    const auto source = [&](std::size_t rank) {
      return view(static_cast<const std::byte*>(sources[rank]) + begin * item, length, dtype);
    };
    at::Tensor total = view(scratch, length, dtype);
    for (std::size_t rank = 1; rank < sources.size(); ++rank) {
      const at::Tensor left = rank == 1 ? source(0) : total;
      if (op == ReduceOp::kSum) {
        at::add_out(total, left, source(rank));
      } else {
        at::maximum_out(total, left, source(rank));
      }
    }
    std::memcpy(static_cast<std::byte*>(dst) + begin * item, scratch, static_cast<std::size_t>(length * item));
  }
}

}  // namespace intarsia::comm
