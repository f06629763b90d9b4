#include "intarsia/tensor/kernels/lion.h"

#include "intarsia/optim/elementwise.h"

namespace intarsia::optim {

void update_lion(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk) {
  tensor::lion_update(chunk.param, chunk.grad, chunk.state[0], chunk.numel,
                      {.lr = rates.lr,
                       .beta1 = rates.beta1,
                       .beta2 = options.beta2,
                       .weight_decay = rates.weight_decay,
                       .grad_scale = rates.grad_scale});
}

}  // namespace intarsia::optim
