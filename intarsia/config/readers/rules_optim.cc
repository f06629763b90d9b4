// The optimizer: its type and parameters, groups of parameters, the moving average; adapters.
#include <algorithm>
#include <cmath>

#include "intarsia/base/text.h"
#include "intarsia/config/readers/deepspeed_rules.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

using Kind = formats::JsonValue::Kind;

const std::string kOptimizer = "optimizer.params.";
const char* const kBuilt = "Adam, AdamW, SGD, Lion, Adagrad, Lamb, Adafactor and Muon are";

bool is_built(const std::string& algorithm) {
  static const std::vector<std::string> kAlgorithms = {"adamw", "adam",    "sgd",       "lion",
                                                       "lamb",  "adagrad", "adafactor", "muon"};
  return std::ranges::find(kAlgorithms, algorithm) != kAlgorithms.end();
}

// The type that --optimizer means: DeepSpeed's names in any case, and Hugging Face's.
const TypeSpec& type_of_flag(const std::string& word) {
  static const std::vector<std::pair<std::string, std::string>> kNames = {
      {"adamw_torch", "AdamW"}, {"adamw_torch_fused", "AdamW"}, {"lion_32bit", "Lion"}};
  for (const auto& [from, to] : kNames)
    if (word == from) return *find_optimizer(to);
  const TypeSpec* type = find_optimizer(word);
  INTARSIA_INVARIANT(type != nullptr, "--optimizer ", word, " is a choice without a type");
  return *type;
}

formats::JsonValue in_force(const TypeSpec& type, const std::string& name, const Draft& draft) {
  if (draft.has(kOptimizer + name)) return draft.find(kOptimizer + name)->value;
  const KeySpec* spec = type.find(name);
  return spec == nullptr || spec->fallback.empty() ? formats::JsonValue{}
                                                   : formats::parse_json(spec->fallback, "default");
}

void read_params(const TypeSpec& type, OptimizerConfig& optimizer, Draft& draft) {
  const auto number = [&](const char* name, double& to) {
    if (type.has(name)) to = in_force(type, name, draft).as_number().value_or(to);
  };
  const auto flag = [&](const char* name, bool& to) {
    if (type.has(name)) to = in_force(type, name, draft).boolean;
  };
  number("lr", optimizer.lr);
  number("weight_decay", optimizer.weight_decay);
  if (const formats::JsonValue betas = in_force(type, "betas", draft); betas.items.size() == 2) {
    optimizer.beta1 = betas.items[0].as_number().value_or(0.9);
    optimizer.beta2 = betas.items[1].as_number().value_or(0.999);
  }
  const formats::JsonValue eps = in_force(type, "eps", draft);
  if (eps.items.size() == 2) {
    optimizer.eps = eps.items[0].as_number().value_or(optimizer.eps);
    optimizer.eps2 = eps.items[1].as_number().value_or(optimizer.eps2);
  } else if (type.has("eps")) {
    optimizer.eps = eps.as_number().value_or(optimizer.eps);
  }
  flag("bias_correction", optimizer.bias_correction);
  flag("torch_adam", optimizer.torch_adam);
  flag("nesterov", optimizer.nesterov);
  number("momentum", optimizer.momentum);
  number("dampening", optimizer.dampening);
  number("lr_decay", optimizer.lr_decay);
  number("initial_accumulator_value", optimizer.initial_accumulator_value);
  number("max_coeff", optimizer.max_coeff);
  number("min_coeff", optimizer.min_coeff);
  number("beta2_decay", optimizer.beta2_decay);
  number("d", optimizer.clip_threshold);
  if (draft.has(kOptimizer + "muon_lr")) optimizer.muon_lr = draft.number(kOptimizer + "muon_lr");
  if (draft.has(kOptimizer + "adam_lr")) optimizer.adam_lr = draft.number(kOptimizer + "adam_lr");
  if (type.has("amsgrad") && draft.boolean(kOptimizer + "amsgrad"))
    draft.refuse(kOptimizer + "amsgrad", "amsgrad is not built; DeepSpeed does not have it either", "false");
  if (type.algorithm == "sgd" && optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0))
    draft.problem(kOptimizer + "nesterov", *draft.find(kOptimizer + "nesterov"),
                  "needs a momentum above 0 and a dampening of 0, as in torch", "false");
  if (type.algorithm == "lamb" && optimizer.min_coeff > optimizer.max_coeff)
    draft.problem(kOptimizer + "min_coeff", draft.sections["optimizer"], shortest(optimizer.min_coeff),
                  concat("is above max_coeff ", shortest(optimizer.max_coeff)));
}

// A flag for what the type does not have is a mistake; Hugging Face's TrainingArguments always say betas and eps.
void check_flags(const TypeSpec& type, Draft& draft) {
  for (const char* key : {"betas", "eps"}) {
    const Asked* asked = draft.find_asked(key);
    const KeySpec* spec = type.find(key);
    const bool fits = spec != nullptr && (std::string_view(key) != "eps" || spec->type == KeyType::kNumber);
    if (asked == nullptr || fits || asked->from == From::kTrainer) continue;
    draft.problem(asked->path, asked->place, join(asked->values, " "),
                  spec == nullptr ? concat(type.name, " has no ", key)
                                  : concat(type.name, "'s eps are two numbers, optimizer.params.eps of the JSON"),
                  "leave it out");
  }
}

void adam_mode(const TypeSpec& type, OptimizerConfig& optimizer, Draft& draft) {
  if (type.algorithm != "adamw") return;
  if (draft.has(kOptimizer + "adam_w_mode") && !draft.boolean(kOptimizer + "adam_w_mode")) {
    if (type.name == "AdamW") {
      draft.problem(kOptimizer + "adam_w_mode", *draft.find(kOptimizer + "adam_w_mode"),
                    "contradicts optimizer.type AdamW, which decouples weight decay always", "optimizer.type Adam");
    }
    optimizer.algorithm = "adam";
  } else if (type.name == "Adam") {
    draft.report(
        Report::Level::kNote, "optimizer.type", draft.find("optimizer.type")->key_place,
        "Adam means decoupled weight decay (AdamW) unless optimizer.params.adam_w_mode is false, as in DeepSpeed");
  }
}

void optimizer_of_file(const TypeSpec& type, Draft& draft) {
  OptimizerConfig& optimizer = draft.result.config.optimizer;
  optimizer.source = Source::kConfig;
  optimizer.type = draft.text("optimizer.type");
  optimizer.algorithm = type.algorithm;
  check_flags(type, draft);
  for (const auto& [name, fallback] :
       {std::pair{"lr", "5e-5"}, {"weight_decay", "0"}, {"betas", "[0.9, 0.999]"}, {"eps", "1e-8"}}) {
    const KeySpec* spec = type.find(name);
    if (spec == nullptr || (std::string_view(name) == "eps" && spec->type != KeyType::kNumber)) continue;
    settle(kOptimizer + name, name, fallback, false, draft);
  }
  drop_other_autos(draft);
  read_params(type, optimizer, draft);
  adam_mode(type, optimizer, draft);
  if (!is_built(optimizer.algorithm))
    draft.refuse("optimizer.type", concat(type.name, " is not built; ", kBuilt), "AdamW");
  const Asked* asked = draft.find_asked("optimizer");
  if (asked == nullptr) return;
  const TypeSpec& wanted = type_of_flag(asked->values[0]);
  // DeepSpeed's Adam decouples like AdamW, so a flag that says AdamW agrees with it.
  if (wanted.name == type.name || (wanted.name == "AdamW" && type.name == "Adam")) return;
  draft.problem("optimizer.type", *draft.find("optimizer.type"), concat("contradicts ", asked->shown),
                "leave the flag out, or use --set");
}

void optimizer_of_others(Draft& draft) {
  OptimizerConfig& optimizer = draft.result.config.optimizer;
  const Asked* any = nullptr;
  for (const char* key : {"optimizer", "lr", "weight_decay", "betas", "eps"}) {
    if (any == nullptr) any = draft.find_asked(key);
  }
  if (any == nullptr && !draft.input.for_training && !draft.trainer_given) return;
  const Asked* asked_type = draft.find_asked("optimizer");
  const TypeSpec* type = asked_type != nullptr ? &type_of_flag(asked_type->values[0]) : find_optimizer("AdamW");
  if (type->name == "Adam") type = find_optimizer("AdamW");  // the same without adam_w_mode
  optimizer.source = draft.trainer_given ? Source::kTrainer : Source::kFlag;
  optimizer.type = type->name;
  optimizer.algorithm = type->algorithm;
  check_flags(*type, draft);
  draft.put("optimizer.type", concat("\"", type->name, "\""), any != nullptr ? any->from : From::kDefault);
  // Hugging Face's base rate for all; the rest is the type's own.
  for (const char* name : {"lr", "weight_decay", "betas", "eps"}) {
    const KeySpec* spec = type->find(name);
    if (spec == nullptr) continue;
    const Asked* asked = draft.find_asked(name);
    const bool two = spec->type == KeyType::kNumbers;
    if (asked != nullptr && std::string_view(name) == "eps" && two) asked = nullptr;
    std::string value = std::string_view(name) == "lr" ? "5e-5" : spec->fallback;
    if (asked != nullptr) value = two ? concat("[", join(asked->values, ", "), "]") : asked->values[0];
    draft.put(kOptimizer + name, value, asked != nullptr ? asked->from : From::kDefault);
  }
  read_params(*type, optimizer, draft);
  const Asked* betas = draft.find_asked("betas");
  if (betas != nullptr && (optimizer.beta1 >= 1 || optimizer.beta2 >= 1))
    draft.problem(betas->path, betas->place, join(betas->values, " "), "each is at least 0 and below 1", "0.9 0.999");
}

// Reads one JSON value of the "intarsia" section, or of its flag, and reports mistakes with their path.
class JsonSetting {
 public:
  JsonSetting(const char* key, Draft& draft) : draft_(draft), asked_(draft.find_asked(key)) {
    if (asked_ != nullptr) value_ = formats::parse_json(asked_->values[0], asked_->path);
  }
  const formats::JsonValue* value() const { return asked_ == nullptr ? nullptr : &value_; }
  void wrong(const std::string& at, const formats::JsonValue& found, std::string message, std::string better = {}) {
    draft_.problem(asked_->path + at, asked_->place, found.show(), std::move(message), std::move(better));
  }
  std::optional<double> number(const std::string& at, const formats::JsonValue& found) {
    const std::optional<double> number = found.as_number();
    if (number && std::isfinite(*number) && *number >= 0) return number;
    wrong(at, found, "a number of at least 0 is expected");
    return std::nullopt;
  }

 private:
  Draft& draft_;
  const Asked* asked_;
  formats::JsonValue value_;
};

void read_group(const formats::JsonValue& from, const std::string& at, JsonSetting& setting, ParamGroupConfig& group) {
  if (from.kind != Kind::kObject)
    return setting.wrong(at, from, "an object is expected", "{\"params\": \"*.norm.weight\", \"weight_decay\": 0}");
  for (const formats::JsonMember& member : from.members) {
    const std::string path = concat(at, ".", member.key);
    if (member.key == "params") {
      const std::vector<formats::JsonValue> one = {member.value};
      for (const formats::JsonValue& pattern : member.value.kind == Kind::kArray ? member.value.items : one) {
        if (pattern.kind != Kind::kString || pattern.text.empty())
          return setting.wrong(path, pattern, "a pattern of parameter names, or a list of them, is expected");
        group.patterns.push_back(pattern.text);
      }
    } else if (member.key == "lr") {
      group.lr = setting.number(path, member.value);
    } else if (member.key == "weight_decay") {
      group.weight_decay = setting.number(path, member.value);
    } else {
      setting.wrong(path, member.value, "unknown key; a group has params, lr and weight_decay",
                    nearest(member.key, {"params", "lr", "weight_decay"}).value_or(""));
    }
  }
  if (group.patterns.empty()) setting.wrong(at, from, "the group has no params", "params");
  if (!from.find("lr") && !from.find("weight_decay"))
    setting.wrong(at, from, "the group has neither lr nor weight_decay, so it changes nothing");
}

void read_groups(Draft& draft) {
  JsonSetting setting("param_groups", draft);
  if (setting.value() == nullptr) return;
  if (setting.value()->kind != Kind::kArray) return setting.wrong("", *setting.value(), "a list of groups is expected");
  std::size_t index = 0;
  for (const formats::JsonValue& item : setting.value()->items)
    read_group(item, concat("[", index++, "]"), setting, draft.result.config.optimizer.groups.emplace_back());
}

void read_ema(Draft& draft) {
  JsonSetting setting("ema", draft);
  if (setting.value() == nullptr) return;
  const formats::JsonMember* decay = setting.value()->find("decay");
  if (decay == nullptr || setting.value()->members.size() != 1)
    return setting.wrong("", *setting.value(), "an object with decay is expected", "{\"decay\": 0.999}");
  const std::optional<double> number = decay->value.as_number();
  if (!number || !(*number > 0 && *number < 1))
    return setting.wrong(".decay", decay->value, "a number above 0 and below 1 is expected", "0.999");
  draft.result.config.optimizer.ema_decay = *number;
}

void read_targets(const formats::JsonValue& from, JsonSetting& setting, LoraConfig& lora) {
  const char* const wanted = "a list of names of linear layers is expected";
  if (from.kind != Kind::kArray || from.items.empty())
    return setting.wrong(".targets", from, wanted, "[\"q_proj\", \"v_proj\"]");
  for (const formats::JsonValue& item : from.items) {
    if (item.kind != Kind::kString || item.text.empty())
      return setting.wrong(".targets", item, wanted, "[\"q_proj\", \"v_proj\"]");
    lora.targets.push_back(item.text);
  }
}

void read_lora(Draft& draft) {
  JsonSetting setting("lora", draft);
  if (setting.value() == nullptr) return;
  LoraConfig& lora = draft.result.config.lora;
  const formats::JsonMember* rank = setting.value()->find("r");
  if (rank == nullptr)
    return setting.wrong("", *setting.value(), "an object with r is expected", "{\"r\": 16, \"alpha\": 32}");
  for (const formats::JsonMember& member : setting.value()->members) {
    const formats::JsonValue& value = member.value;
    if (member.key == "r") {
      const std::optional<std::int64_t> r = value.as_integer();
      if (!r || *r < 1 || *r > 65536)
        setting.wrong(".r", value, "a whole number from 1 to 65536 is expected", "16");
      else
        lora.r = *r;
    } else if (member.key == "alpha") {
      const std::optional<double> alpha = value.as_number();
      if (!alpha || !std::isfinite(*alpha) || *alpha <= 0)
        setting.wrong(".alpha", value, "a number above 0 is expected", "16");
      else
        lora.alpha = *alpha;
    } else if (member.key == "dropout") {
      const std::optional<double> dropout = value.as_number();
      if (!dropout || !(*dropout >= 0 && *dropout < 1))
        setting.wrong(".dropout", value, "a number from 0 to below 1 is expected", "0.05");
      else
        lora.dropout = *dropout;
    } else if (member.key == "targets") {
      read_targets(value, setting, lora);
    } else {
      setting.wrong(concat(".", member.key), value, "unknown key; lora has r, alpha, dropout and targets",
                    nearest(member.key, {"r", "alpha", "dropout", "targets"}).value_or(""));
    }
  }
}

}  // namespace

const TypeSpec* section_type(const char* section, Draft& draft) {
  const bool optimizer = section[0] == 'o';
  const std::vector<TypeSpec>& types = optimizer ? deepspeed_optimizers() : deepspeed_schedulers();
  std::vector<std::string> names;
  for (const TypeSpec& type : types) names.push_back(type.name);
  const std::string path = concat(section, ".type");
  const Cell* cell = draft.find(path);
  if (cell == nullptr) {
    if (draft.sections.contains(concat(section, ".params")) || draft.sections.contains(section)) {
      draft.problem(path, draft.sections.contains(section) ? draft.sections[section] : formats::JsonPlace{}, "",
                    "the section has no type", join(names));
    }
    return nullptr;
  }
  const TypeSpec* type = optimizer ? find_optimizer(cell->value.text) : find_scheduler(cell->value.text);
  if (type == nullptr)
    draft.problem(path, *cell, concat("unknown type; known are ", join(names)),
                  nearest(cell->value.text, names).value_or(""));
  return type;
}

void resolve_optimizer(Draft& draft) {
  const TypeSpec* type = section_type("optimizer", draft);
  if (type != nullptr) {
    optimizer_of_file(*type, draft);
  } else if (!draft.is_bad("optimizer.type")) {
    optimizer_of_others(draft);
  }
  read_groups(draft);
  read_ema(draft);
  read_lora(draft);
}

}  // namespace intarsia::config
