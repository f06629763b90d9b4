// The optimizer's files of a DeepSpeed checkpoint: NAME_optim_states.pt, and in stage 0 a part of the model's file.
#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/deepspeed_reader.h"

namespace intarsia::formats {
namespace {

std::vector<std::vector<std::string>> names_of(const DeepSpeedModel& model) {
  std::vector<std::vector<std::string>> out;
  for (const auto& group : model.groups)
    for (std::vector<std::string>& names = out.emplace_back(); const NamedShape& param : group)
      names.push_back(param.name);
  return out;
}

class OptimizerFile {
 public:
  OptimizerFile(const std::string& path, CheckpointContents& contents)
      : file_(path), index_(file_.add_to(contents)), state_(find_state()) {}

  int stage() const {
    if (state_.find("fp32_flat_groups")) return 3;
    INTARSIA_CHECK(kUnsupported, state_.find("single_partition_of_fp32_groups"), printable(file_.path()),
                   ": an optimizer file without single_partition_of_fp32_groups (ZeRO-1, 2) and without ",
                   "fp32_flat_groups (ZeRO-3) is not read");
    const auto stage = state_.find("zero_stage");
    // ZeroStageEnum(2); BF16_Optimizer has none.
    const auto number = !stage                                 ? std::optional<std::int64_t>(1)
                        : stage->kind() == PickleKind::kObject ? first_argument(*stage)
                                                               : stage->integer();
    return number == 2 ? 2 : 1;
  }

  std::vector<GroupParts> groups(int stage, std::int64_t& step) const {
    check_paddings();
    const PickleValue masters = *state_.find(stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    INTARSIA_CHECK(kUnsupported, masters.kind() == PickleKind::kList, printable(file_.path()),
                   ": its fp32 weights are ", masters.describe(),
                   ", as very old versions write them; expected a list of groups");
    const PickleValue base = optimizer(stage);
    const auto states = base.find("state");
    std::vector<GroupParts> out(masters.size());
    for (std::size_t group = 0; group < out.size(); ++group) {
      out[group].emplace("master", flat(masters[group], "master"));
      const auto of_group = states ? find_key(*states, static_cast<std::int64_t>(group)) : std::nullopt;
      if (!of_group) continue;
      for (std::size_t i = 0; i + 1 < of_group->size(); i += 2) {
        const auto key = (*of_group)[i].text();
        if (!key) continue;
        if (key == "step") {
          step = std::max(step, count_of(number_of(file_.archive(), (*of_group)[i + 1])).value_or(0));
          continue;
        }
        const auto tensor = file_.archive().tensor((*of_group)[i + 1]);
        if (tensor && tensor->numel() > 1) out[group].emplace(*key, flat((*of_group)[i + 1], std::string(*key)));
      }
    }
    return out;
  }

  void read_numbers(int stage, const DeepSpeedModel& model, TrainingState& out) const {
    const auto groups = optimizer(stage).find("param_groups");
    if (!groups) return;
    std::vector<std::vector<std::string>> names = names_of(model);
    if (stage == 3) names = by_group(*groups, names);
    read_deepspeed_numbers(file_.archive(), state_, *groups, names, out);
  }

 private:
  PickleValue find_state() const {
    const auto state = file_.root().find("optimizer_state_dict");
    INTARSIA_CHECK(kFormat, state && state->kind() == PickleKind::kDict, printable(file_.path()), " holds ",
                   file_.root().describe(), " without optimizer_state_dict; this is no optimizer file of DeepSpeed");
    return *state;
  }

  static std::optional<std::int64_t> first_argument(const PickleValue& object) {
    return object.arguments().size() > 0 ? object.arguments()[0].integer() : std::nullopt;
  }

  PickleValue optimizer(int stage) const {
    const char* key = stage == 3 ? "optimizer_state_dict" : "base_optimizer_state";
    const auto base = state_.find(key);
    INTARSIA_CHECK(kUnsupported, base && base->kind() == PickleKind::kDict, printable(file_.path()), ": ", key, " is ",
                   base ? base->describe() : "not there",
                   ", expected a dict; checkpoints of elastic_checkpoint are not read");
    return *base;
  }

  void check_paddings() const {
    const auto paddings = state_.find("param_alignment_paddings");
    if (!paddings) return;
    for (std::size_t group = 0; group < paddings->size(); ++group)
      for (std::size_t i = 0; i < (*paddings)[group].size(); ++i)
        INTARSIA_CHECK(kUnsupported, (*paddings)[group][i].integer().value_or(1) == 0, printable(file_.path()),
                       ": parameters with a padding of their own (param_alignment_paddings) are not read");
  }

  FlatPart flat(const PickleValue& value, const std::string& kind) const {
    const auto tensor = file_.archive().tensor(value);
    INTARSIA_CHECK(kFormat, tensor && tensor->is_contiguous(), printable(file_.path()), ": \"", printable(kind),
                   "\" of a group is ", value.describe(), ", expected a flat tensor");
    return {.file = index_, .begin = tensor->begin, .numel = tensor->numel(), .dtype = tensor->dtype};
  }

  // Stage 3: a group's "params" are numbers of sub-groups. Without them there is one group, or one sub-group in each.
  std::vector<std::vector<std::string>> by_group(const PickleValue& groups,
                                                 const std::vector<std::vector<std::string>>& sub_groups) const {
    std::vector<std::vector<std::string>> out(groups.size());
    for (std::size_t group = 0; group < out.size(); ++group) {
      const auto params = groups[group].find("params");
      for (std::size_t i = 0; i < sub_groups.size(); ++i) {
        bool is_in = params ? false : out.size() == 1 || (out.size() == sub_groups.size() && i == group);
        for (std::size_t k = 0; params && k < params->size(); ++k)
          is_in = is_in || (*params)[k].integer() == static_cast<std::int64_t>(i);
        if (is_in) out[group].insert(out[group].end(), sub_groups[i].begin(), sub_groups[i].end());
      }
    }
    return out;
  }

  ArchiveFile file_;
  std::size_t index_;
  PickleValue state_;
};

}  // namespace

void read_deepspeed_numbers(const TorchArchive& archive, const PickleValue& state, const PickleValue& groups,
                            const std::vector<std::vector<std::string>>& names, TrainingState& out) {
  for (std::size_t group = 0; group < groups.size(); ++group) {
    out.groups.push_back({.numbers = group_numbers(groups[group])});
    if (group < names.size() && names.size() == groups.size()) out.groups.back().names = names[group];
  }
  const auto scaler = state.find("loss_scaler");
  const auto fields = scaler ? scaler->state() : std::nullopt;
  if (!fields) return;
  const auto number = [&](const char* key, double otherwise) {
    const auto value = fields->find(key);
    return value ? number_of(archive, *value).value_or(otherwise) : otherwise;
  };
  const auto integer = [&](const char* key, double otherwise) { return count_of(number(key, otherwise)).value_or(0); };
  out.loss_scale = {.scale = number("cur_scale", 1),
                    .dynamic = number("dynamic", 0) != 0,
                    .hysteresis_left = integer("cur_hysteresis", 1),
                    .iteration = integer("cur_iter", 0),
                    .last_overflow = integer("last_overflow_iter", -1),
                    .window = integer("scale_window", 1000),
                    .hysteresis = integer("delayed_shift", 2),
                    .min = number("min_scale", 1),
                    .consecutive_hysteresis = number("consecutive_hysteresis", 0) != 0};
}

DeepSpeedOptimizer read_deepspeed_optimizer(const std::string& path, bool is_first, const DeepSpeedModel& model,
                                            CheckpointContents& contents) {
  const OptimizerFile file(path, contents);
  DeepSpeedOptimizer out;
  out.stage = file.stage();
  out.groups = file.groups(out.stage, out.step);
  if (is_first) file.read_numbers(out.stage, model, contents.state);
  return out;
}

void read_deepspeed_stage0(const ArchiveFile& file, CheckpointContents& contents) {
  TrainingState& state = contents.state;
  const auto optimizer = file.root().find("optimizer");
  const auto states = optimizer ? optimizer->find("state") : std::nullopt;
  const auto groups = optimizer ? optimizer->find("param_groups") : std::nullopt;
  if (!states || !groups) {
    state.no_optimizer_state = !optimizer || optimizer->kind() == PickleKind::kNone
                                   ? "it was saved without the optimizer"
                                   : "it is a stage 0 checkpoint in 16 bits (FP16_Optimizer), of which only the "
                                     "weights are read";
    return;
  }
  // Numbers go through the groups, in each in the model's order; the file does not tell which weight is in which
  // group, but one group has all, and of two the first usually has the matrices and the second the vectors.
  std::vector<const LogicalTensor*> weights, order;
  for (const LogicalTensor& tensor : contents.tensors) weights.push_back(&tensor);
  const auto take = [&](bool all, bool matrices) {
    for (const LogicalTensor* weight : weights)
      if (all || (weight->shape.size() > 1) == matrices) order.push_back(weight);
  };
  if (groups->size() == 1) take(true, true);
  if (groups->size() == 2) take(false, true), take(false, false);
  std::map<std::int64_t, PickleValue> by_number;
  for (std::size_t i = 0; i + 1 < states->size(); i += 2)
    if (const auto number = (*states)[i].integer()) by_number.emplace(*number, (*states)[i + 1]);
  std::vector<LogicalTensor> found;
  std::size_t next = 0;
  bool fits = !order.empty();
  std::vector<std::vector<std::string>> names(groups->size());
  for (std::size_t group = 0; fits && group < groups->size(); ++group) {
    const auto params = (*groups)[group].find("params");
    for (std::size_t i = 0; fits && params && i < params->size(); ++i, ++next) {
      const auto number = (*params)[i].integer();
      const auto entry_at = number ? by_number.find(*number) : by_number.end();
      fits = entry_at != by_number.end() && next < order.size();
      if (!fits) break;
      const PickleValue* const entry = &entry_at->second;
      names[group].push_back(order[next]->name);
      for (std::size_t k = 0; k + 1 < entry->size(); k += 2) {
        const auto key = (*entry)[k].text();
        const auto tensor = key ? file.archive().tensor((*entry)[k + 1]) : std::nullopt;
        if (!tensor || key == "step") continue;
        fits = fits && tensor->shape == order[next]->shape && tensor->is_contiguous();
        found.push_back({.name = order[next]->name,
                         .kind = std::string(*key),
                         .dtype = tensor->dtype,
                         .shape = tensor->shape,
                         .pieces = {{0, tensor->begin, {0}, {tensor->numel()}}}});
      }
    }
  }
  if (!fits || next != order.size()) {
    state.no_optimizer_state =
        "the file does not tell which moment is which weight's (stage 0 with frozen weights or "
        "groups other than matrices and vectors)";
    return;
  }
  for (LogicalTensor& tensor : found) contents.tensors.push_back(std::move(tensor));
  read_deepspeed_numbers(file.archive(), *optimizer, *groups, names, state);
}

}  // namespace intarsia::formats
