#include "intarsia/tensor/kernels/adagrad.h"

#include "intarsia/optim/elementwise.h"

namespace intarsia::optim {

void update_adagrad(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk) {
  const double lr = rates.lr / (1 + static_cast<double>(rates.update - 1) * options.lr_decay);
  tensor::adagrad_update(
      chunk.param, chunk.grad, chunk.state[0], chunk.numel,
      {.lr = lr, .eps = options.eps, .weight_decay = rates.weight_decay, .grad_scale = rates.grad_scale});
}

}  // namespace intarsia::optim
