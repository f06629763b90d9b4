#include "intarsia/cli/commands/peer_state_of.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/config/resolve.h"
#include "intarsia/plan/lr_schedule.h"
#include "intarsia/plan/optimizer_of_config.h"

namespace intarsia::cli {
namespace {

using formats::LogicalCheckpoint;
using formats::LogicalTensor;
using formats::PeerGroup;
using formats::PeerParam;
using formats::PeerState;

bool is_weight(const LogicalTensor& tensor) { return tensor.kind == "master" || tensor.kind == "weight"; }

PeerGroup numbers_of(const std::map<std::string, double>& numbers, const std::string& path) {
  PeerGroup out;
  const auto take = [&](const char* key, double otherwise) {
    const auto found = numbers.find(key);
    return found == numbers.end() ? otherwise : found->second;
  };
  INTARSIA_CHECK(kUnsupported, numbers.contains("lr"), printable(path),
                 " does not tell the learning rate of its optimizer, which a training checkpoint of a peer must have");
  out.lr = take("lr", 0);
  out.initial_lr = take("initial_lr", out.lr);
  out.beta1 = take("beta1", out.beta1);
  out.beta2 = take("beta2", out.beta2);
  out.eps = take("eps", out.eps);
  out.weight_decay = take("weight_decay", out.weight_decay);
  return out;
}

bool names(const formats::ParameterGroup& group, const PeerParam& param) {
  return std::ranges::find(group.names, param.name) != group.names.end() ||
         std::ranges::any_of(param.tied_names, [&](const std::string& other) {
           return std::ranges::find(group.names, other) != group.names.end();
         });
}

// As the checkpoint tells them.
void add_told_groups(PeerState& state, const LogicalCheckpoint& checkpoint) {
  const std::vector<formats::ParameterGroup>& told = checkpoint.state().groups;
  INTARSIA_CHECK(kUnsupported, !told.empty(), printable(checkpoint.path()), " (", checkpoint.format(),
                 ") does not tell its optimizer's numbers (learning rate, betas), which a training checkpoint of a ",
                 "peer must have");
  for (const formats::ParameterGroup& group : told)
    state.groups.push_back(numbers_of(group.numbers, checkpoint.path()));
  for (std::size_t i = 0; i < state.params.size(); ++i) {
    if (state.params[i].states.empty()) continue;
    std::size_t index = 0;
    while (index < told.size() && told.size() > 1 && !names(told[index], state.params[i])) ++index;
    INTARSIA_CHECK(kFormat, index < told.size(), printable(checkpoint.path()), " has a state of ",
                   printable(state.params[i].name), ", which none of its optimizer's ", told.size(), " groups names");
    state.groups[index].params.push_back(i);
  }
  std::erase_if(state.groups, [](const PeerGroup& group) { return group.params.empty(); });
}

// As the run that saved it had them: parameters of one rate and one decay, in the model's order.
void add_run_groups(PeerState& state, const LogicalCheckpoint& checkpoint, plan::ModelSpec model) {
  config::ResolveInput input;
  input.file = concat(checkpoint.path(), ": its run's configuration");
  input.text = checkpoint.run_config();
  input.ranks = std::max(1, checkpoint.ranks());
  input.model.hidden_size = model.hidden_size;
  input.for_training = true;
  const config::TrainConfig config = config::resolve(input).config;
  for (std::size_t i = 0; i < model.params.size(); ++i) model.params[i].frozen = state.params[i].states.empty();
  const plan::OptimizerPlan optimizer = plan::optimizer_of(config, model);
  INTARSIA_CHECK(kUnsupported, optimizer.kind == plan::OptimizerKind::kAdam, printable(checkpoint.path()),
                 " is of a run with ", config.optimizer.type, "; checkpoints of peers are written for Adam and AdamW");
  const plan::LrSchedule schedule = plan::schedule_of(config);
  const std::int64_t next = state.updates + 1;
  std::vector<std::pair<double, double>> seen;  // ratio of the rate, decay
  for (std::size_t i = 0; i < state.params.size(); ++i) {
    if (state.params[i].states.empty()) continue;
    const plan::ParamSetting setting = optimizer.setting(static_cast<int>(i));
    const std::pair key(setting.lr_ratio, setting.weight_decay);
    const auto found = std::ranges::find(seen, key);
    const auto index = static_cast<std::size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(key);
      state.groups.push_back({.params = {},
                              .lr = schedule.lr_at_update(next) * setting.lr_ratio,
                              .initial_lr = optimizer.lr * setting.lr_ratio,
                              .beta1 = schedule.cycle_momentum ? schedule.beta1_at_update(next) : optimizer.beta1,
                              .beta2 = optimizer.beta2,
                              .eps = optimizer.eps,
                              .weight_decay = setting.weight_decay});
    }
    state.groups[index].params.push_back(i);
  }
  state.decoupled_decay = optimizer.decoupled_decay;
  state.torch_adam = config.optimizer.torch_adam;
  if (state.loss_scale) {
    state.loss_scale->window = config.loss_scale.window;
    state.loss_scale->hysteresis = config.loss_scale.hysteresis;
    state.loss_scale->min = config.loss_scale.min;
    state.loss_scale->consecutive_hysteresis = config.loss_scale.consecutive_hysteresis;
  }
}

}  // namespace

PeerState state_of(const LogicalCheckpoint& checkpoint, const plan::CheckpointWeights* weights,
                   const plan::ModelSpec* model) {
  PeerState out;
  if (model != nullptr) {
    for (const plan::ParamSpec& param : model->params) {
      out.params.push_back({.name = param.name,
                            .tied_names = param.tied_names,
                            .shape = param.shape,
                            .weight = weights->find("weight", param)});
      for (const LogicalTensor& tensor : checkpoint.tensors())
        if (!is_weight(tensor) && !out.params.back().states.contains(tensor.kind))
          if (const LogicalTensor* const found = weights->find(tensor.kind, param))
            out.params.back().states.emplace(tensor.kind, found);
    }
  } else {
    for (const LogicalTensor* weight : checkpoint.weights()) {
      if (checkpoint.aliases().contains(weight->name)) continue;
      PeerParam param{.name = weight->name, .shape = weight->shape, .weight = weight};
      for (const auto& [other, name] : checkpoint.aliases())
        if (name == weight->name) param.tied_names.push_back(other);
      for (const LogicalTensor& tensor : checkpoint.tensors())
        if (!is_weight(tensor) && tensor.name == weight->name) param.states.emplace(tensor.kind, &tensor);
      out.params.push_back(std::move(param));
    }
  }
  const formats::TrainingState& state = checkpoint.state();
  out.updates = state.updates.value_or(0);
  out.step = state.step.value_or(out.updates);
  out.samples = state.samples.value_or(0);
  out.loss_scale = state.loss_scale;
  return out;
}

void add_groups(PeerState& state, const LogicalCheckpoint& checkpoint, const plan::ModelSpec* model) {
  bool has_average = false, has_state = false;
  for (PeerParam& param : state.params) {
    has_average = param.states.erase("ema") > 0 || has_average;
    has_state = has_state || !param.states.empty();
  }
  if (has_average) log_warning("the moving average of the weights is not written: the peers have no place for it");
  if (!has_state) return;
  if (checkpoint.run_config().empty() || model == nullptr) {
    add_told_groups(state, checkpoint);
  } else {
    add_run_groups(state, checkpoint, *model);
  }
  for (const PeerParam& param : state.params)
    INTARSIA_CHECK(
        kUnsupported,
        param.states.empty() ||
            (param.states.size() == 2 && param.states.contains("exp_avg") && param.states.contains("exp_avg_sq")),
        printable(checkpoint.path()), " keeps ", printable(param.states.begin()->first), " of ", printable(param.name),
        "; checkpoints of peers are written for Adam and AdamW, which keep exp_avg "
        "and exp_avg_sq of every trained weight");
}

}  // namespace intarsia::cli
