// One Adam or AdamW update over contiguous fp32 memory.
#pragma once

#include <cstdint>

namespace intarsia::tensor {

struct AdamStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = true;
  bool bias_correction = true;
  std::int64_t update = 1;  // k in 1 - beta^k, counted from 1
  float grad_scale = 1;     // gradients are multiplied by it first: averaging, unscaling and clipping in one
};

// The step's scalars, computed once in double and rounded once.
struct AdamScalars {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float eps, decay, l2, step_size, root_correction, grad_scale;
};
AdamScalars adam_scalars(const AdamStep& step);

// Updates numel elements of param, moment1 and moment2 from grad:
//   g = grad_scale * grad (+ weight_decay * p unless decoupled);  p = p * (1 - lr * weight_decay) if decoupled;
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p = p - lr * (m / (1 - b1^k)) / (sqrt(v / (1 - b2^k)) + eps).
// Every element gets the same bits wherever it lies: no contraction, only correctly rounded operations.
// Source: Loshchilov and Hutter, "Decoupled weight decay regularization" (arXiv 1711.05101), algorithm 2.
void adam_update(float* param, const float* grad, float* moment1, float* moment2, std::int64_t numel,
                 const AdamStep& step);

}  // namespace intarsia::tensor
