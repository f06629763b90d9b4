#include "intarsia/tensor/block_sums.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "intarsia/base/error.h"
#include "intarsia/tensor/kernels/square_sum.h"

namespace intarsia::tensor {
namespace {

constexpr std::int64_t kBlock = 1024, kLanes = 16;  // of square_sum()
constexpr std::int64_t kBlocksAtATime = std::int64_t{1} << 17;

// One operation for each addition of a lane: 64 and then 16 of them, each over all blocks.
at::Tensor on_device(const at::Tensor& blocks) {
  const at::Tensor rows = blocks.view({-1, kBlock / kLanes, kLanes});
  at::Tensor lanes = at::zeros({rows.size(0), kLanes}, rows.options().dtype(at::kDouble));
  for (std::int64_t row = 0; row < rows.size(1); ++row) {
    const at::Tensor wide = rows.select(1, row).to(at::kDouble);
    lanes.add_(wide * wide);
  }
  at::Tensor sum = at::zeros({rows.size(0)}, lanes.options());
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum.add_(lanes.select(1, lane));
  return sum;
}

}  // namespace

void block_square_sums(const at::Tensor& values, const at::Tensor& sums) {
  const at::NoGradGuard no_grad;
  const std::int64_t count = sums.numel();
  INTARSIA_INVARIANT(values.is_contiguous() && values.scalar_type() == at::kFloat && values.numel() == count * kBlock,
                     count, " sums of blocks over ", values.numel(), " elements");
  if (values.is_cpu()) {
    auto* out = sums.mutable_data_ptr<double>();
    const auto* in = values.const_data_ptr<float>();
    for (std::int64_t block = 0; block < count; ++block) out[block] = square_sum(in + block * kBlock, kBlock);
    return;
  }
  for (std::int64_t begin = 0; begin < count; begin += kBlocksAtATime) {
    const std::int64_t length = std::min(kBlocksAtATime, count - begin);
    sums.narrow(0, begin, length).copy_(on_device(values.narrow(0, begin * kBlock, length * kBlock)));
  }
}

double square_sum_of(const at::Tensor& values) {
  if (values.is_cpu()) return square_sum(values.const_data_ptr<float>(), values.numel());
  const at::Tensor sums = at::empty({values.numel() / kBlock}, at::kDouble);
  block_square_sums(values, sums);
  const auto* blocks = sums.const_data_ptr<double>();
  return std::accumulate(blocks, blocks + sums.numel(), 0.0);
}

}  // namespace intarsia::tensor
