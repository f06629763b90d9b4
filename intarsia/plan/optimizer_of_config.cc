#include "intarsia/plan/optimizer_of_config.h"

#include <algorithm>
#include <map>
#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/plan/name_pattern.h"
#include "intarsia/plan/optimizer_states.h"

namespace intarsia::plan {
namespace {

// For each parameter the pattern and group that take it.
struct Taken {
  const config::ParamGroupConfig* group = nullptr;
  const std::string* pattern = nullptr;
};

std::vector<Taken> take(const std::vector<config::ParamGroupConfig>& groups, const ModelSpec& model) {
  std::vector<Taken> taken(model.params.size());
  for (const config::ParamGroupConfig& group : groups) {
    for (const std::string& pattern : group.patterns) {
      bool any = false;
      for (std::size_t i = 0; i < model.params.size(); ++i) {
        if (model.params[i].frozen || !matches(pattern, model.params[i])) continue;
        any = true;
        INTARSIA_CHECK(kConfig, taken[i].group == nullptr || taken[i].group == &group,
                       "intarsia.param_groups: ", printable(model.params[i].name), " is matched by ",
                       printable(*taken[i].pattern), " and by ", printable(pattern),
                       " of another group; a parameter belongs to one group at most");
        taken[i] = {&group, &pattern};
      }
      INTARSIA_CHECK(kConfig, any, "intarsia.param_groups: the pattern ", printable(pattern),
                     " matches no trainable parameter; it is held against whole names such as ",
                     model.params.empty() ? "" : model.params[model.params.size() / 2].name, ", * stands for any part");
    }
  }
  return taken;
}

OptimizerKind kind_of(const config::OptimizerConfig& from) {
  static const std::map<std::string, OptimizerKind> kKinds = {
      {"adamw", OptimizerKind::kAdam},          {"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSgd},
      {"lion", OptimizerKind::kLion},           {"lamb", OptimizerKind::kLamb}, {"adagrad", OptimizerKind::kAdagrad},
      {"adafactor", OptimizerKind::kAdafactor}, {"muon", OptimizerKind::kMuon}};
  const auto kind = kKinds.find(from.algorithm);
  INTARSIA_CHECK(kUnsupported, kind != kKinds.end(), "optimizer ", from.type,
                 " is not built; Adam, AdamW, SGD, Lion, Adagrad, Lamb, Adafactor and Muon are");
  return kind->second;
}

}  // namespace

OptimizerPlan optimizer_of(const config::TrainConfig& config, const ModelSpec& model) {
  const config::OptimizerConfig& from = config.optimizer;
  OptimizerPlan to{.kind = kind_of(from),
                   .lr = from.lr,
                   .decoupled_decay = from.algorithm != "adam",
                   .bias_correction = from.bias_correction,
                   .beta1 = from.beta1,
                   .beta2 = from.beta2,
                   .eps = from.eps,
                   .momentum = from.momentum,
                   .dampening = from.dampening,
                   .nesterov = from.nesterov,
                   .lr_decay = from.lr_decay,
                   .initial_sum = from.initial_accumulator_value,
                   .max_coeff = from.max_coeff,
                   .min_coeff = from.min_coeff,
                   .beta2_decay = from.beta2_decay,
                   .eps2 = from.eps2,
                   .clip_threshold = from.clip_threshold,
                   .weight_decay = from.weight_decay,
                   .ema_decay = from.ema_decay};
  const std::vector<Taken> taken = take(from.groups, model);
  for (std::size_t i = 0; i < model.params.size(); ++i) {
    const ParamSpec& param = model.params[i];
    ParamSetting setting{.weight_decay = config.run.no_decay_1d && param.is_vector() ? 0 : from.weight_decay};
    std::optional<double> lr;
    if (to.kind == OptimizerKind::kMuon) lr = updates_matrix(to, param) ? from.muon_lr : from.adam_lr;
    if (taken[i].group != nullptr) {
      if (taken[i].group->lr) lr = taken[i].group->lr;
      setting.weight_decay = taken[i].group->weight_decay.value_or(setting.weight_decay);
    }
    if (lr) {
      INTARSIA_CHECK(kConfig, from.lr > 0 || *lr == 0, "the learning rate is 0, but ", printable(param.name), " has ",
                     shortest(*lr), ": rates of parameters follow the schedule in proportion to the base rate, which ",
                     "must be above 0");
      setting.lr_ratio = from.lr > 0 ? *lr / from.lr : 1;
    }
    to.settings.push_back(setting);
  }
  return to;
}

}  // namespace intarsia::plan
