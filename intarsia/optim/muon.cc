#include "intarsia/optim/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "intarsia/optim/elementwise.h"
#include "intarsia/tensor/kernels/ranges.h"
#include "intarsia/tensor/kernels/square_sum.h"

namespace intarsia::optim {

using plan::TensorKind;

at::Tensor newton_schulz(const at::Tensor& matrix) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeastNorm = 1e-7;
  const bool tall = matrix.size(0) > matrix.size(1);
  const double norm = std::sqrt(tensor::square_sum(matrix.const_data_ptr<float>(), matrix.numel()));
  at::Tensor x = (tall ? matrix.t() : matrix).div(std::max(norm, kLeastNorm));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

void Muon::update() {
  const auto keep = static_cast<float>(options().momentum);
  for (const Piece& piece : pieces()) {
    if (plan::updates_matrix(options(), spec(piece))) continue;
    const Rates now = rates(piece.param);
    for_each_chunk(piece, {TensorKind::kExpAvg, TensorKind::kExpAvgSq}, false,
                   [&](const Chunk& chunk) { update_adam(options(), now, chunk); });
  }
  exchange_.run(
      {.prepare =
           [&](const Matrix& matrix, plan::Range, const at::Tensor& part) {
             const auto fresh =
                 static_cast<float>((1 - options().momentum) * static_cast<double>(rates(matrix.param).grad_scale));
             for_each_chunk(piece_of(matrix.flat, matrix.slot), {TensorKind::kMomentum}, false,
                            [&](const Chunk& chunk) {
                              float* out = part.mutable_data_ptr<float>() + chunk.begin;
                              tensor::mix_range(chunk.state[0], keep, chunk.grad, fresh, chunk.numel);
                              std::copy_n(chunk.state[0], chunk.numel, out);
                              if (options().nesterov) tensor::mix_range(out, keep, chunk.grad, fresh, chunk.numel);
                            });
           },
       .transform =
           [](const Matrix&, const at::Tensor& whole) {
             const at::Tensor matrix = whole.view({whole.size(0), -1});
             matrix.copy_(newton_schulz(matrix));
           },
       .apply =
           [&](const Matrix& matrix, plan::Range, const at::Tensor& part) {
             const Rates now = rates(matrix.param);
             const plan::ParamSpec& param = plan().model.params[static_cast<std::size_t>(matrix.param)];
             const auto rows = static_cast<double>(param.shape[0]);
             const double columns = static_cast<double>(param.numel()) / rows;
             const auto decay = static_cast<float>(1 - now.lr * now.weight_decay);
             const auto add = static_cast<float>(-now.lr * std::sqrt(std::max(1.0, rows / columns)));
             for_each_chunk(piece_of(matrix.flat, matrix.slot), {}, false, [&](const Chunk& chunk) {
               tensor::mix_range(chunk.param, decay, part.const_data_ptr<float>() + chunk.begin, add, chunk.numel);
             });
           }});
}

}  // namespace intarsia::optim
