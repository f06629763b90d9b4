// The optimizer of a run, decided and frozen. Pure data, without torch.
#pragma once

#include <cstddef>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::plan {

enum class OptimizerKind { kAdam, kSgd, kLion, kAdagrad, kLamb, kAdafactor, kMuon };

// What one parameter has of its own.
struct ParamSetting {
  double lr_ratio = 1;  // its rate is the schedule's times this
  double weight_decay = 0;
};

// Which fields count for which kind, and their formulas: docs/optimizers.md.
struct OptimizerPlan {
  OptimizerKind kind = OptimizerKind::kAdam;
  double lr = 1e-3;             // base rate; the schedule gives the rate of each update
  bool decoupled_decay = true;  // Adam: true is AdamW; false: L2 added to the gradient
  bool bias_correction = true;  // Adam, LAMB
  double beta1 = 0.9;           // Adam, LAMB, Lion; Muon's other parameters
  double beta2 = 0.999;
  double eps = 1e-8;                        // Adagrad and Adafactor have other defaults
  double momentum = 0;                      // SGD, Muon
  double dampening = 0;                     // SGD
  bool nesterov = false;                    // SGD, Muon
  double lr_decay = 0;                      // Adagrad: the rate of update k is lr / (1 + (k - 1) lr_decay)
  double initial_sum = 0;                   // Adagrad: where the sum of squares begins
  double max_coeff = 10;                    // LAMB: limits of the trust ratio
  double min_coeff = 0.01;                  //
  double beta2_decay = -0.8;                // Adafactor: 1 - beta2 of update k is k^beta2_decay
  double eps2 = 1e-3;                       // Adafactor: least root mean square of a parameter
  double clip_threshold = 1;                // Adafactor: largest root mean square of an update
  double weight_decay = 0;                  // of parameters without a setting
  std::vector<ParamSetting> settings = {};  // by index into ModelSpec::params; empty: no parameter has its own
  DType state_dtype = DType::kF32;          // of the state tensors, kF32 or kBF16; computed in fp32, rounded once
  double ema_decay = 0;                     // of the moving average of the weights, fp32; 0: none is kept

  ParamSetting setting(int param) const {
    return settings.empty() ? ParamSetting{1, weight_decay} : settings[static_cast<std::size_t>(param)];
  }
};

}  // namespace intarsia::plan
