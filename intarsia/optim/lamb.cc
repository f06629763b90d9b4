#include "intarsia/optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "intarsia/tensor/kernels/ranges.h"
#include "intarsia/tensor/kernels/square_sum.h"

namespace intarsia::optim {
namespace {

const std::vector<plan::TensorKind> kMoments = {plan::TensorKind::kExpAvg, plan::TensorKind::kExpAvgSq};

}  // namespace

void Lamb::update() {
  const auto eps = static_cast<float>(options().eps);
  std::array<float, plan::kShardBlock> direction;
  const auto find_direction = [&](const Chunk& chunk, const Rates& now) {
    tensor::lamb_direction(chunk.param, chunk.state[0], chunk.state[1], eps, static_cast<float>(now.weight_decay),
                           direction.data(), chunk.numel);
  };
  for (const Piece& piece : pieces()) {
    const Rates now = rates(piece.param);
    for_each_chunk(piece, kMoments, false, [&](const Chunk& chunk) {
      tensor::moments_range(chunk.grad, now.grad_scale, chunk.state[0], now.beta1, chunk.state[1], options().beta2,
                            chunk.numel);
    });
    // From the moments as they rest: the same direction is found again below.
    ParamSums::Pair* block = sums_.blocks(piece.flat, piece.slot);
    for_each_chunk(piece, kMoments, true, [&](const Chunk& chunk) {
      find_direction(chunk, now);
      *block++ = {tensor::square_sum(chunk.param, chunk.numel), tensor::square_sum(direction.data(), chunk.numel)};
    });
  }
  const std::vector<ParamSums::Pair> sums = sums_.add_up("norms of parameters");
  for (const Piece& piece : pieces()) {
    const Rates now = rates(piece.param);
    const auto [param_square, direction_square] = sums[static_cast<std::size_t>(piece.param)];
    double ratio = 1;
    if (param_square > 0 && direction_square > 0)
      ratio = std::clamp(std::sqrt(param_square / direction_square), options().min_coeff, options().max_coeff);
    double step_size = now.lr;
    if (options().bias_correction) {
      const auto k = static_cast<double>(now.update);
      step_size *= std::sqrt(1 - std::pow(options().beta2, k)) / (1 - std::pow(now.beta1, k));
    }
    const auto factor = static_cast<float>(-step_size * ratio);
    for_each_chunk(piece, kMoments, true, [&](const Chunk& chunk) {
      find_direction(chunk, now);
      tensor::mix_range(chunk.param, 1.0F, direction.data(), factor, chunk.numel);
    });
  }
}

}  // namespace intarsia::optim
