#include "intarsia/tensor/adamw_tensors.h"

#include <ATen/ATen.h>

namespace intarsia::tensor {

void adam_update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& moment1, const at::Tensor& moment2,
                 const AdamStep& step) {
  const AdamScalars s = adam_scalars(step);
  at::Tensor g = grad * s.grad_scale;
  g.add_(param * s.l2);
  moment1.mul_(s.beta1).add_(g * s.one_minus_beta1);
  moment2.mul_(s.beta2).add_(g.mul_(g).mul_(s.one_minus_beta2));
  // Divided by a tensor: CUDA multiplies by the reciprocal of a number.
  const at::Tensor correction = at::full({}, s.root_correction, param.options());
  const at::Tensor denominator = moment2.sqrt().div_(correction).add_(s.eps);
  param.mul_(s.decay).sub_(at::div(moment1, denominator).mul_(s.step_size));
}

}  // namespace intarsia::tensor
