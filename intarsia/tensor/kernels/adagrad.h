// One Adagrad update over contiguous fp32 memory.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

struct AdagradStep {
  double lr = 0;  // of this update, its decay applied
  double eps = 1e-10;
  double weight_decay = 0;
  float grad_scale = 1;  // gradients are multiplied by it first
};

// g = grad_scale * grad + weight_decay * p; sum = sum + g^2; p = p - lr * (g / (sqrt(sum) + eps)).
// Every element gets the same bits wherever it lies. Source: torch.optim.Adagrad; Duchi et al., JMLR 12 (2011).
void adagrad_update(float* param, const float* grad, float* sum, std::int64_t numel, const AdagradStep& step);

}  // namespace intarsia::tensor
