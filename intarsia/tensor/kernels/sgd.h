// One SGD update over contiguous fp32 memory.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first = false;    // the buffer begins as the gradient itself
  float grad_scale = 1;  // gradients are multiplied by it first
};

// g = grad_scale * grad + weight_decay * p; buffer = momentum * buffer + (1 - dampening) * g;
// p = p - lr * (buffer, or with nesterov g + momentum * buffer). `buffer` is not read when momentum is 0.
// Every element gets the same bits wherever it lies. Source: torch.optim.SGD.
void sgd_update(float* param, const float* grad, float* buffer, std::int64_t numel, const SgdStep& step);

}  // namespace intarsia::tensor
