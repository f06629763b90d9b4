// The optimizer and the schedule of the learning rate, as asked. Part of TrainConfig. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace intarsia::config {

// Who asked for an optimizer or a scheduler. kCaller: nobody; the program that reads the file brings its own.
enum class Source { kCaller, kConfig, kTrainer, kFlag };

// Parameters with a rate or a decay of their own (intarsia.param_groups).
struct ParamGroupConfig {
  std::vector<std::string> patterns;   // shell patterns (*, ?, [...]) over whole parameter names; * crosses dots
  std::optional<double> lr;            // base rate; absent: the optimizer's
  std::optional<double> weight_decay;  // absent: the optimizer's
};

// The optimizer. Defaults are those of the DeepSpeed JSON (lr 1e-3) unless a trainer or flags bring it (lr 5e-5).
// docs/optimizers.md says which field counts for which algorithm.
struct OptimizerConfig {
  Source source = Source::kCaller;
  std::string type;                 // as asked: "AdamW", "Adam", "Lamb"; empty with kCaller
  std::string algorithm = "adamw";  // what it means: adamw, adam (decay added to the gradient), sgd, lion, adagrad, ...
  bool torch_adam = false;          // no effect here; config show names the class that DeepSpeed would build
  double lr = 1e-3;                 // base rate, per update
  double beta1 = 0.9;               // decay of the first moment; larger: smoother, slower to react
  double beta2 = 0.999;             // decay of the second moment
  double eps = 1e-8;                // added to the root of the second moment; larger: smaller steps of rare parameters
  double weight_decay = 0;          // per unit of lr (decoupled with adamw)
  bool bias_correction = true;
  double momentum = 0, dampening = 0;  // sgd; momentum: muon too
  bool nesterov = false;
  double lr_decay = 0, initial_accumulator_value = 0;          // adagrad
  double max_coeff = 10, min_coeff = 0.01;                     // lamb's limits of the trust ratio
  double beta2_decay = -0.8, eps2 = 1e-3, clip_threshold = 1;  // adafactor
  std::optional<double> muon_lr, adam_lr;  // muon: base rates of its matrices and of the rest; absent: lr
  std::vector<ParamGroupConfig> groups;
  double ema_decay = 0;  // of the moving average of the weights; 0: none; larger: a longer memory
};

// The schedule of the learning rate, as asked; plan::schedule_of makes the function of the update's number.
struct SchedulerConfig {
  Source source = Source::kCaller;  // kCaller: none asked, the rate is constant
  std::string type;  // WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest; Hugging Face's names; list
                     // (intarsia.lr_schedule)
  std::vector<std::pair<std::string, std::string>> params;  // what was asked, values as JSON text
  // DeepSpeed's, with DeepSpeed's defaults. Rates are per update, steps count optimizer updates.
  double warmup_min_lr = 0;
  std::optional<double> warmup_max_lr;  // absent: WarmupLR takes the optimizer's lr, WarmupDecayLR 1e-3
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
  bool log_warmup = true;
  std::int64_t warmup_steps = 0;
  double warmup_share = 0;       // more than 0: warmup_steps is this share of the run, once its length is known
  std::int64_t total_steps = 0;  // 0: the run's length, once it is known
  // Hugging Face's.
  double min_lr_ratio = 0;                       // cosine_with_min_lr, warmup_stable_decay: floor / lr
  std::optional<double> num_cycles;              // cosine: half waves, 0.5; cosine_with_restarts: 1
  double power = 1, lr_end = 1e-7;               // polynomial
  std::int64_t timescale = 0;                    // inverse_sqrt; 0: the warm-up, or 10,000 without one
  std::optional<std::int64_t> num_stable_steps;  // warmup_stable_decay; absent: what warm-up and decay leave
  std::int64_t num_decay_steps = 0;              //
  std::string warmup_type = "linear", decay_type = "cosine";  // linear, cosine, 1-sqrt
  std::vector<double> list;                                   // update n uses list[n - 1]; after the end the last value
  // OneCycle and LRRangeTest.
  double cycle_min_lr = 0, cycle_max_lr = 1e-3, decay_lr_rate = 0;
  std::int64_t cycle_first_steps = 2000, cycle_second_steps = 2000;
  std::int64_t cycle_first_stairs = 0, cycle_second_stairs = 0, decay_steps = 0;
  bool cycle_momentum = true;
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0;
  double range_min_lr = 1e-3, range_step_rate = 1;
  std::int64_t range_steps = 2000;
  bool range_staircase = false;
};

// Whether something waits for the run's length: then the schedule has no rates yet.
bool waits_for_length(const SchedulerConfig& scheduler);

// Now that the run's length is known: fills in what waited for it (the end of the schedule, a warm-up given as a share,
// rounded up), also in SchedulerConfig::params.
void settle_length(SchedulerConfig& scheduler, std::int64_t updates);

}  // namespace intarsia::config
