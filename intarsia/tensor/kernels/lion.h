// One Lion update over contiguous fp32 memory.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

struct LionStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  float grad_scale = 1;  // gradients are multiplied by it first
};

// p = p * (1 - lr * weight_decay) - lr * sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g. The sign of 0 is 0.
// Every element gets the same bits wherever it lies.
// Source: Chen et al., "Symbolic discovery of optimization algorithms" (arXiv 2302.06675), algorithm 2.
void lion_update(float* param, const float* grad, float* moment, std::int64_t numel, const LionStep& step);

}  // namespace intarsia::tensor
