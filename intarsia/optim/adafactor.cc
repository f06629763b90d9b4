#include "intarsia/optim/adafactor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "intarsia/tensor/device.h"
#include "intarsia/tensor/kernels/ranges.h"
#include "intarsia/tensor/kernels/square_sum.h"

namespace intarsia::optim {
namespace {

using plan::TensorKind;

double root_mean(double square_sum, std::int64_t numel) { return std::sqrt(square_sum / static_cast<double>(numel)); }

}  // namespace

void Adafactor::update() {
  const double k = static_cast<double>(updates()), fresh = std::pow(k, options().beta2_decay);
  const auto floor = static_cast<float>(options().eps * options().eps);
  std::array<float, plan::kShardBlock> direction;
  for (const Piece& piece : pieces()) {
    const Rates now = rates(piece.param);
    ParamSums::Pair* block = sums_.blocks(piece.flat, piece.slot);
    if (plan::updates_matrix(options(), spec(piece))) {
      for_each_chunk(piece, {}, true, [&](const Chunk& chunk) {
        *block++ = {tensor::square_sum(chunk.param, chunk.numel), 0};
      });
      continue;
    }
    for_each_chunk(piece, {TensorKind::kVariance}, false, [&](const Chunk& chunk) {
      tensor::variance_range(chunk.grad, now.grad_scale, chunk.state[0], 1 - fresh, chunk.numel);
    });
    for_each_chunk(piece, {TensorKind::kVariance}, true, [&](const Chunk& chunk) {
      tensor::over_root(chunk.grad, now.grad_scale, chunk.state[0], floor, direction.data(), chunk.numel);
      *block++ = {tensor::square_sum(chunk.param, chunk.numel), tensor::square_sum(direction.data(), chunk.numel)};
    });
  }
  const std::vector<ParamSums::Pair> sums = sums_.add_up("norms of parameters");
  const auto alpha = [&](int param, const Rates& now) {
    const std::int64_t numel = plan().model.params[static_cast<std::size_t>(param)].numel();
    return std::max(options().eps2, root_mean(sums[static_cast<std::size_t>(param)][0], numel)) *
           std::min(now.lr, 1 / std::sqrt(k));
  };
  for (const Piece& piece : pieces()) {
    if (plan::updates_matrix(options(), spec(piece))) continue;
    const Rates now = rates(piece.param);
    const double size = root_mean(sums[static_cast<std::size_t>(piece.param)][1], spec(piece).numel());
    const auto keep = static_cast<float>(1 - now.lr * now.weight_decay);
    const auto add = static_cast<float>(-alpha(piece.param, now) / std::max(1.0, size / options().clip_threshold));
    for_each_chunk(piece, {TensorKind::kVariance}, true, [&](const Chunk& chunk) {
      tensor::over_root(chunk.grad, now.grad_scale, chunk.state[0], floor, direction.data(), chunk.numel);
      tensor::mix_range(chunk.param, keep, direction.data(), add, chunk.numel);
    });
  }
  exchange_.run(
      {.prepare =
           [&](const Matrix& matrix, plan::Range, const at::Tensor& part) {
             const float scale = rates(matrix.param).grad_scale;
             for_each_chunk(piece_of(matrix.flat, matrix.slot), {}, false, [&](const Chunk& chunk) {
               tensor::scale_range(part.mutable_data_ptr<float>() + chunk.begin, chunk.grad, scale, chunk.numel);
             });
           },
       .transform = [&](const Matrix& matrix, const at::Tensor& whole) { transform(matrix, whole, fresh); },
       .apply =
           [&](const Matrix& matrix, plan::Range, const at::Tensor& part) {
             const Rates now = rates(matrix.param);
             const auto keep = static_cast<float>(1 - now.lr * now.weight_decay);
             const auto add = static_cast<float>(-alpha(matrix.param, now));
             for_each_chunk(piece_of(matrix.flat, matrix.slot), {}, false, [&](const Chunk& chunk) {
               tensor::mix_range(chunk.param, keep, part.const_data_ptr<float>() + chunk.begin, add, chunk.numel);
             });
           }});
}

// The gradient becomes u / max(1, rms(u) / d), and the owner's means of squares are renewed.
void Adafactor::transform(const Matrix& matrix, const at::Tensor& whole, double fresh) const {
  const auto renewed = [&](TensorKind kind, std::int64_t dim) {
    const at::Tensor at_rest = state(matrix.flat, matrix.slot, kind);
    const at::Tensor mean = at::linalg_vector_norm(whole, 2, at::IntArrayRef{dim}, true)
                                .square_()
                                .div_(static_cast<double>(whole.size(dim)));
    const at::Tensor value = tensor::on_host(at_rest).to(at::kFloat).view(mean.sizes()).lerp(mean, fresh);
    at_rest.copy_(value.view({-1}));
    return tensor::on_host(at_rest).to(at::kFloat).view(mean.sizes());
  };
  const at::Tensor rows = renewed(TensorKind::kRowVar, -1), columns = renewed(TensorKind::kColVar, -2);
  const at::Tensor direction = at::matmul(rows, columns);
  direction.div_(rows.mean(-2, true).clamp_min_(options().eps));
  direction.clamp_min_(options().eps * options().eps).rsqrt_().mul_(whole);
  const double size =
      root_mean(tensor::square_sum(direction.const_data_ptr<float>(), direction.numel()), direction.numel());
  whole.copy_(direction.div_(std::max(1.0, size / options().clip_threshold)));
}

}  // namespace intarsia::optim
