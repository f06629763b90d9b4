#include "intarsia/optim/elementwise.h"
#include "intarsia/tensor/kernels/adamw.h"

namespace intarsia::optim {

void update_adam(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk) {
  tensor::adam_update(chunk.param, chunk.grad, chunk.state[0], chunk.state[1], chunk.numel,
                      {.lr = rates.lr,
                       .beta1 = rates.beta1,
                       .beta2 = options.beta2,
                       .eps = options.eps,
                       .weight_decay = rates.weight_decay,
                       .decoupled_decay = options.decoupled_decay,
                       .bias_correction = options.bias_correction,
                       .update = rates.update,
                       .grad_scale = rates.grad_scale});
}

}  // namespace intarsia::optim
