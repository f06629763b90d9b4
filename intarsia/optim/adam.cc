#include "intarsia/optim/elementwise.h"
#include "intarsia/tensor/adamw_tensors.h"
#include "intarsia/tensor/kernels/adamw.h"

namespace intarsia::optim {

namespace {

tensor::AdamStep step_of(const plan::OptimizerPlan& options, const Rates& rates) {
  return {.lr = rates.lr,
          .beta1 = rates.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = rates.weight_decay,
          .decoupled_decay = options.decoupled_decay,
          .bias_correction = options.bias_correction,
          .update = rates.update,
          .grad_scale = rates.grad_scale};
}

}  // namespace

void update_adam(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk) {
  tensor::adam_update(chunk.param, chunk.grad, chunk.state[0], chunk.state[1], chunk.numel, step_of(options, rates));
}

void update_adam_on_device(const plan::OptimizerPlan& options, const Rates& rates, const DeviceChunk& chunk) {
  tensor::adam_update(chunk.param, chunk.grad, chunk.state[0], chunk.state[1], step_of(options, rates));
}

}  // namespace intarsia::optim
