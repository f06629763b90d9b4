#include "intarsia/config/readers/deepspeed_rows.h"

namespace intarsia::config {

std::vector<TypeSpec> make_deepspeed_optimizers() {
  const char* const one = "there is one optimizer for every device";
  const std::vector<KeySpec> base = {number("lr", "0.001", 0), number("weight_decay", "0", 0)};
  const auto with = [&](std::vector<KeySpec> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const std::vector<KeySpec> adam =
      with({numbers("betas", "[0.9, 0.999]"), number("eps", "1e-8", 0), flag("bias_correction", "true"),
            flag("amsgrad", "false"), flag("torch_adam", "false", E::kNoEffect, one), flag("adam_w_mode", "true"),
            flag("fp32_optimizer_states", "true", E::kRefused, "optimizer states are fp32")});
  const std::vector<KeySpec> lamb =
      with({numbers("betas", "[0.9, 0.999]"), number("eps", "1e-8", 0), flag("bias_correction", "true"),
            flag("amsgrad", "false"), number("max_coeff", "10", 0), number("min_coeff", "0.01", 0)});
  const std::vector<KeySpec> one_bit =
      with({numbers("betas", "[0.9, 0.999]"), number("eps", "1e-8", 0), flag("bias_correction", "true"),
            flag("amsgrad", "false"), integer("freeze_step", "100000", 0), flag("cuda_aware", "false"),
            text("comm_backend_name", "\"nccl\""), integer("var_freeze_step", "100000", 0),
            integer("var_update_scaler", "16", 0), integer("local_step_scaler", "32678", 0),
            integer("local_step_clipper", "16", 0), number("max_coeff", "10", 0), number("min_coeff", "0.01", 0),
            number("coeff_beta", "0.9", 0), number("factor_max", "4", 0), number("factor_min", "0.5", 0),
            number("factor_threshold", "0.1", 0)});
  const std::vector<KeySpec> muon =
      with({numbers("betas", "[0.9, 0.999]"), number("eps", "1e-8", 0), number("momentum", "0.95", 0),
            number("muon_lr", "", 0), number("adam_lr", "", 0), flag("nesterov", "true"),
            choice("ns_method", "\"gram\"", {"gram", "standard"}, E::kNoEffect,
                   "both are one iteration in another order of operations")});
  const std::vector<KeySpec> sgd =
      with({number("momentum", "0", 0), number("dampening", "0", 0), flag("nesterov", "false")});
  return {{"AdamW", "adamw", adam},
          {"Adam", "adamw", adam},
          {"Lamb", "lamb", lamb},
          {"Adagrad", "adagrad",
           with({number("eps", "1e-10", 0), number("lr_decay", "0", 0), number("initial_accumulator_value", "0", 0)})},
          {"Lion", "lion", with({numbers("betas", "[0.9, 0.99]")})},
          {"SGD", "sgd", sgd},
          {"Adafactor", "adafactor",
           with({at_most(0, number("beta2_decay", "-0.8", -kNoLimit)),
                 numbers("eps", "[1.1920928955078125e-07, 0.001]"), number("d", "1.0", 1)})},
          {"Muon", "muon", muon},
          {"OneBitAdam", "onebitadam", one_bit},
          {"ZeroOneAdam", "zerooneadam", one_bit},
          {"OneBitLamb", "onebitlamb", one_bit},
          {"MuAdam", "muadam", adam},
          {"MuAdamW", "muadamw", adam},
          {"MuSGD", "musgd", sgd}};
}

std::vector<TypeSpec> make_deepspeed_schedulers() {
  const KeySpec last = integer("last_batch_iteration", "-1", -1, E::kRefused, "a run resumes from its checkpoint");
  const KeySpec steps = integer("warmup_num_steps", "1000", 0);
  const KeySpec type = choice("warmup_type", "\"log\"", {"log", "linear"});
  const KeySpec total = integer("total_num_steps", "", 1);
  const auto all = [](const char* path, const char* fallback) { return number(path, fallback, 0); };
  return {{"WarmupLR", "", {all("warmup_min_lr", "0"), all("warmup_max_lr", ""), steps, type, last}},
          {"WarmupDecayLR", "", {total, all("warmup_min_lr", "0"), all("warmup_max_lr", "0.001"), steps, type, last}},
          {"WarmupCosineLR",
           "",
           {total, at_most(1, all("warmup_min_ratio", "0")), steps, at_most(1, all("cos_min_ratio", "0.0001")), type,
            last}},
          {"OneCycle",
           "",
           {all("cycle_min_lr", ""), all("cycle_max_lr", ""), all("decay_lr_rate", "0"),
            integer("cycle_first_step_size", "2000", 1), integer("cycle_second_step_size", "", 1),
            integer("cycle_first_stair_count", "0", 0), integer("cycle_second_stair_count", "", 0),
            integer("decay_step_size", "0", 0), flag("cycle_momentum", "true"), at_most(1, all("cycle_min_mom", "0.8")),
            at_most(1, all("cycle_max_mom", "0.9")), all("decay_mom_rate", "0"), last}},
          {"LRRangeTest",
           "",
           {all("lr_range_test_min_lr", "0.001"), integer("lr_range_test_step_size", "2000", 1),
            all("lr_range_test_step_rate", "1.0"), flag("lr_range_test_staircase", "false"), last}}};
}

}  // namespace intarsia::config
