#include "intarsia/tensor/kernels/sgd.h"

#include "intarsia/optim/elementwise.h"

namespace intarsia::optim {

void update_sgd(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk) {
  tensor::sgd_update(chunk.param, chunk.grad, chunk.state[0], chunk.numel,
                     {.lr = rates.lr,
                      .momentum = options.momentum,
                      .dampening = options.dampening,
                      .weight_decay = rates.weight_decay,
                      .nesterov = options.nesterov,
                      .first = rates.update == 1,
                      .grad_scale = rates.grad_scale});
}

}  // namespace intarsia::optim
