#include "intarsia/nn/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "intarsia/base/error.h"
#include "intarsia/plan/logit_tiles.h"
#include "intarsia/tensor/kernels/softmax.h"
#include "intarsia/tensor/matrix_product.h"

namespace intarsia::nn {
namespace {

using plan::kLogitTileColumns;
using plan::kLogitTileRows;
using tensor::LogitTile;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Needs {
  bool x = false, weight = false;
  bool any() const { return x || weight; }
};

struct LossAndGradients {
  at::Tensor loss, x, weight;
};

// One computation of a loss; members are views of its inputs and of the memory it works in.
class Computation {
 public:
  Computation(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, const Needs& needs)
      : x_(x.contiguous()),
        weight_(weight.contiguous()),
        targets_(targets.contiguous()),
        needs_(needs),
        rows_(x.size(0)),
        vocab_(weight.size(0)),
        bf16_(x.scalar_type() == at::kBFloat16) {
    const std::int64_t held = plan::logits_held(rows_, vocab_, x.element_size());
    kept_ = held == rows_ * vocab_;
    logits_ = at::empty({held}, x.options());
    const at::TensorOptions wide = x.options().dtype(at::kFloat);
    maximum_ = at::full({rows_}, -std::numeric_limits<float>::infinity(), wide);
    log_sum_ = at::zeros({rows_}, wide);
    of_target_ = at::zeros({rows_}, wide);
  }

  LossAndGradients run() {
    for_each_tile([&](const LogitTile& tile, std::int64_t row) { add_tile(tile, row); });
    LossAndGradients result;
    result.loss = sum_up();
    if (!needs_.any()) return result;
    const at::TensorOptions wide = x_.options().dtype(at::kFloat);
    if (needs_.x) x_grad_ = at::zeros(x_.sizes(), wide);
    if (needs_.weight) result.weight = at::empty(weight_.sizes(), weight_.options());
    // Where a column's gradient is a sum over several tiles of rows, it is rounded once.
    const bool summed = rows_ > kLogitTileRows && bf16_;
    at::Tensor sum;
    if (needs_.weight && summed) sum = at::empty({kLogitTileColumns, x_.size(1)}, wide);
    for_each_tile([&](const LogitTile& tile, std::int64_t row) {
      const at::Tensor logits = turned_to_gradient(tile, row);
      if (needs_.x) tensor::multiply_into(x_grad_.narrow(0, row, tile.rows), logits, columns_of(weight_, tile), true);
      if (!needs_.weight) return;
      const at::Tensor whole = columns_of(result.weight, tile);
      const at::Tensor to = summed ? sum.narrow(0, 0, tile.columns) : whole;
      tensor::multiply_into(to, logits.t(), x_.narrow(0, row, tile.rows), row > 0);
      if (summed && row + tile.rows == rows_) whole.copy_(to);
    });
    if (needs_.x) result.x = x_grad_.to(x_.scalar_type());
    return result;
  }

 private:
  template <class Use>
  void for_each_tile(const Use& use) const {
    for (std::int64_t column = 0; column < vocab_; column += kLogitTileColumns)
      for (std::int64_t row = 0; row < rows_; row += kLogitTileRows)
        use(LogitTile{.rows = std::min(kLogitTileRows, rows_ - row),
                      .columns = std::min(kLogitTileColumns, vocab_ - column),
                      .first = column},
            row);
  }

  static at::Tensor columns_of(const at::Tensor& weight, const LogitTile& tile) {
    return weight.narrow(0, tile.first, tile.columns);
  }

  // Where the tile's logits are, or go.
  at::Tensor place(const LogitTile& tile, std::int64_t row) const {
    const std::int64_t begin = kept_ ? tile.first * rows_ + row * tile.columns : 0;
    return logits_.narrow(0, begin, tile.rows * tile.columns).view({tile.rows, tile.columns});
  }

  at::Tensor computed(const LogitTile& tile, std::int64_t row) const {
    const at::Tensor logits = place(tile, row);
    tensor::multiply_into(logits, x_.narrow(0, row, tile.rows), columns_of(weight_, tile).t(), false);
    return logits;
  }

  template <class T>
  void pick_targets(const at::Tensor& logits, const LogitTile& tile, std::int64_t row) const {
    const T* const from = logits.const_data_ptr<T>();
    const std::int64_t* const target = targets_.const_data_ptr<std::int64_t>() + row;
    float* const to = of_target_.mutable_data_ptr<float>() + row;
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t column = target[i] - tile.first;
      if (target[i] >= 0 && column >= 0 && column < tile.columns)
        to[i] = static_cast<float>(from[i * tile.columns + column]);
    }
  }

  void add_tile(const LogitTile& tile, std::int64_t row) const {
    const at::Tensor logits = computed(tile, row);
    tensor::add_to_softmax(logits.const_data_ptr(), tile, maximum_.mutable_data_ptr<float>() + row,
                           log_sum_.mutable_data_ptr<float>() + row, bf16_);
    bf16_ ? pick_targets<at::BFloat16>(logits, tile, row) : pick_targets<float>(logits, tile, row);
  }

  // The loss; sums become their logarithms.
  at::Tensor sum_up() const {
    const float* const maximum = maximum_.const_data_ptr<float>();
    const float* const of_target = of_target_.const_data_ptr<float>();
    const std::int64_t* const target = targets_.const_data_ptr<std::int64_t>();
    float* const log_sum = log_sum_.mutable_data_ptr<float>();
    double loss = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
      log_sum[row] = maximum[row] + std::log(log_sum[row]);
      if (target[row] >= 0) loss += log_sum[row] - of_target[row];
    }
    return at::full({}, loss, maximum_.options());
  }

  at::Tensor turned_to_gradient(const LogitTile& tile, std::int64_t row) const {
    const at::Tensor logits = kept_ ? place(tile, row) : computed(tile, row);
    tensor::softmax_gradient(logits.mutable_data_ptr(), tile, log_sum_.const_data_ptr<float>() + row,
                             targets_.const_data_ptr<std::int64_t>() + row, bf16_);
    return logits;
  }

  at::Tensor x_, weight_, targets_;
  Needs needs_;
  std::int64_t rows_, vocab_;
  bool bf16_, kept_ = false;
  at::Tensor logits_, maximum_, log_sum_, of_target_, x_grad_;
};

class LinearCrossEntropy : public Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, bool x_needs, bool weight_needs) {
    const LossAndGradients result = Computation(x, weight, targets, {x_needs, weight_needs}).run();
    // Not as saved tensors: nothing that recomputes or compresses those could make them again.
    context->saved_data["x"] = result.x;
    context->saved_data["weight"] = result.weight;
    return result.loss;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list result{taken(context, "x"), taken(context, "weight"), at::Tensor(), at::Tensor(), at::Tensor()};
    const auto seed = grads[0].item<double>();
    if (seed == 1) return result;
    for (at::Tensor& grad : result)
      if (grad.defined()) grad.mul_(seed);
    return result;
  }

 private:
  static at::Tensor taken(AutogradContext* context, const char* name) {
    const auto found = context->saved_data.find(name);
    INTARSIA_CHECK(kUsage, found != context->saved_data.end(),
                   "the gradients of a loss were asked for twice; run its forward again");
    at::Tensor result = found->second.toTensor();
    context->saved_data.erase(found);
    return result;
  }
};

}  // namespace

at::Tensor plain_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets) {
  return at::cross_entropy_loss(at::linear(x, weight).to(at::kFloat), targets, {}, at::Reduction::Sum, -100);
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets) {
  const bool enabled = at::GradMode::is_enabled();
  return LinearCrossEntropy::apply(x, weight, targets, enabled && x.requires_grad(), enabled && weight.requires_grad());
}

}  // namespace intarsia::nn
