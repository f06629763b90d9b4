// The optimizer of a run, decided and frozen. Pure data, without torch.
#pragma once

namespace intarsia::plan {

struct OptimizerPlan {
  bool decoupled_decay = true;  // AdamW; false: L2 added to the gradient (Adam)
  bool bias_correction = true;
  double lr = 1e-3;  // base rate; the schedule gives the rate of each update
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool no_decay_1d = false;  // no weight decay for parameters of one dimension (norms, biases)
};

}  // namespace intarsia::plan
