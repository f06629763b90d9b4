// LAMB: Adam whose step is scaled, parameter by parameter, to the size of the parameter.
#pragma once

#include "intarsia/optim/optimizer.h"
#include "intarsia/optim/param_sums.h"

namespace intarsia::optim {

// u = m / (sqrt(v) + eps) + weight_decay p;  p = p - lr sqrt(1 - b2^k) / (1 - b1^k) ratio u, where ratio is |p| / |u|
// within [min_coeff, max_coeff], and 1 when either norm is 0. As DeepSpeed's fused kernel has it: the bias correction
// scales the step, not the moments. Source: You et al., arXiv 1904.00962, algorithm 2; DeepSpeed 0.19, csrc/lamb.
// Traffic: 16 bytes a block of 1,024 elements, once an update.
class Lamb final : public Optimizer {
 public:
  Lamb(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, const comm::DataAxes& axes)
      : Optimizer(plan, states, axes), sums_(plan, axis(), sharded()) {}

 private:
  void update() override;

  ParamSums sums_;
};

}  // namespace intarsia::optim
