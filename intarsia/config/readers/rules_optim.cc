// Optimizer and scheduler.
#include <algorithm>
#include <cmath>

#include "intarsia/base/text.h"
#include "intarsia/config/readers/deepspeed_rules.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

const std::string kOptimizer = "optimizer.params.";
const std::string kScheduler = "scheduler.params.";

Source source_of(From from) { return from == From::kTrainer ? Source::kTrainer : Source::kFlag; }

std::vector<std::string> names(const std::vector<TypeSpec>& types) {
  std::vector<std::string> out;
  for (const TypeSpec& type : types) out.push_back(type.name);
  return out;
}

// The type of a section, or nullptr with a problem.
const TypeSpec* section_type(const char* section, const TypeSpec* (*find)(std::string_view),
                             const std::vector<TypeSpec>& types, Draft& draft) {
  const std::string path = concat(section, ".type");
  const Cell* cell = draft.find(path);
  if (cell == nullptr) {
    if (draft.sections.contains(concat(section, ".params")) || draft.sections.contains(section)) {
      draft.problem(path, draft.sections.contains(section) ? draft.sections[section] : formats::JsonPlace{}, "",
                    "the section has no type", join(names(types)));
    }
    return nullptr;
  }
  const TypeSpec* type = find(cell->value.text);
  if (type == nullptr) {
    draft.problem(path, *cell, concat("unknown type; DeepSpeed has ", join(names(types))),
                  nearest(cell->value.text, names(types)).value_or(""));
  }
  return type;
}

void read_adam(OptimizerConfig& optimizer, Draft& draft) {
  const formats::JsonValue betas = draft.has(kOptimizer + "betas") ? draft.find(kOptimizer + "betas")->value
                                                                   : formats::parse_json("[0.9, 0.999]", "default");
  if (betas.items.size() == 2) {
    optimizer.beta1 = betas.items[0].as_number().value_or(0.9);
    optimizer.beta2 = betas.items[1].as_number().value_or(0.999);
  }
  if (draft.has(kOptimizer + "eps")) optimizer.eps = draft.number(kOptimizer + "eps");
  if (draft.has(kOptimizer + "bias_correction"))
    optimizer.bias_correction = draft.boolean(kOptimizer + "bias_correction");
  optimizer.torch_adam = draft.boolean(kOptimizer + "torch_adam");
  optimizer.momentum = draft.number(kOptimizer + "momentum");
  if (draft.has(kOptimizer + "max_coeff")) optimizer.max_coeff = draft.number(kOptimizer + "max_coeff");
  if (draft.has(kOptimizer + "min_coeff")) optimizer.min_coeff = draft.number(kOptimizer + "min_coeff");
  if (draft.boolean(kOptimizer + "amsgrad"))
    draft.refuse(kOptimizer + "amsgrad", "amsgrad is not built; DeepSpeed does not have it either", "false");
}

void optimizer_of_file(const TypeSpec& type, Draft& draft) {
  OptimizerConfig& optimizer = draft.result.config.optimizer;
  optimizer.source = Source::kConfig;
  optimizer.type = draft.text("optimizer.type");
  optimizer.algorithm = type.algorithm;
  for (const auto& [name, key, fallback] : {std::tuple{"lr", "lr", "5e-5"},
                                            {"weight_decay", "weight_decay", "0"},
                                            {"betas", "betas", "[0.9, 0.999]"},
                                            {"eps", "eps", "1e-8"}}) {
    const bool has = std::any_of(type.params.begin(), type.params.end(),
                                 [&, wanted = name](const KeySpec& spec) { return spec.path == wanted; });
    if (has) settle(kOptimizer + name, key, fallback, false, draft);
  }
  drop_other_autos(draft);
  optimizer.lr = draft.number(kOptimizer + "lr");
  optimizer.weight_decay = draft.number(kOptimizer + "weight_decay");
  read_adam(optimizer, draft);
  const bool adam = type.algorithm == "adamw";
  if (adam && draft.has(kOptimizer + "adam_w_mode") && !draft.boolean(kOptimizer + "adam_w_mode")) {
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
  if (!adam) draft.refuse("optimizer.type", concat(type.name, " is not built yet; AdamW and Adam are"), "AdamW");
  const Asked* asked = draft.find_asked("optimizer");
  if (asked != nullptr) {
    const bool wants_adam_only = asked->values[0] == "Adam" || asked->values[0] == "adam";
    if (!adam || (wants_adam_only && type.name != "Adam"))
      draft.problem("optimizer.type", *draft.find("optimizer.type"), concat("contradicts ", asked->shown),
                    "leave the flag out, or use --set");
  }
}

void optimizer_of_others(Draft& draft) {
  OptimizerConfig& optimizer = draft.result.config.optimizer;
  const Asked* any = nullptr;
  for (const char* key : {"optimizer", "lr", "weight_decay", "betas", "eps"}) {
    if (any == nullptr) any = draft.find_asked(key);
  }
  if (any == nullptr && !draft.input.for_training && !draft.trainer_given) return;
  optimizer.source = draft.trainer_given ? Source::kTrainer : Source::kFlag;
  optimizer.type = "AdamW";
  optimizer.lr = 5e-5;  // Hugging Face's default
  const auto number = [&](const char* key, double& to, const std::string& path) {
    const Asked* asked = draft.find_asked(key);
    if (asked != nullptr) to = *parse_number(asked->values[0]);
    draft.put(path, shortest(to), asked != nullptr ? asked->from : From::kDefault);
  };
  number("lr", optimizer.lr, kOptimizer + "lr");
  number("weight_decay", optimizer.weight_decay, kOptimizer + "weight_decay");
  number("eps", optimizer.eps, kOptimizer + "eps");
  const Asked* betas = draft.find_asked("betas");
  if (betas != nullptr) {
    optimizer.beta1 = *parse_number(betas->values[0]);
    optimizer.beta2 = *parse_number(betas->values[1]);
    if (optimizer.beta1 >= 1 || optimizer.beta2 >= 1)
      draft.problem(betas->path, betas->place, join(betas->values, " "), "each is at least 0 and below 1", "0.9 0.999");
  }
  draft.put(kOptimizer + "betas", concat("[", shortest(optimizer.beta1), ", ", shortest(optimizer.beta2), "]"),
            betas != nullptr ? betas->from : From::kDefault);
  draft.put("optimizer.type", "\"AdamW\"", any != nullptr ? any->from : From::kDefault);
}

// Warm-up updates as asked; below 1 it is a share of all updates, rounded up. Nothing when it cannot be known.
std::optional<std::int64_t> warmup_updates(Draft& draft) {
  const Asked* asked = draft.find_asked("warmup");
  if (asked == nullptr) return 0;
  const double warmup = *parse_number(asked->values[0]);
  if (warmup > 1e15 || (warmup > 1 && warmup != std::floor(warmup))) {
    draft.problem(asked->path, asked->place, asked->values[0],
                  "a whole number of updates, or a share below 1, is expected");
    return std::nullopt;
  }
  if (warmup >= 1 || warmup == 0) return static_cast<std::int64_t>(warmup);
  const Asked* steps = draft.find_asked("steps");
  if (steps == nullptr) {
    draft.problem(asked->path, asked->place, asked->values[0], "a share of the updates, whose number is not known",
                  "--steps");
    return std::nullopt;
  }
  return static_cast<std::int64_t>(std::ceil(warmup * *parse_number(steps->values[0])));
}

// The scheduler's "auto" parameters, and contradictions with flags or trainer.
void settle_scheduler(const TypeSpec& type, Draft& draft) {
  const Asked* lr = draft.find_asked("lr");
  const Asked* warmup = draft.find_asked("warmup");
  const Asked* steps = draft.find_asked("steps");
  for (const KeySpec& param : type.params) {
    const std::string path = kScheduler + param.path;
    const Cell* cell = draft.find(path);
    if (cell == nullptr || draft.is_bad(path)) continue;
    const bool is_auto = cell->is_auto();
    if (is_auto && !draft.auto_defaults()) {
      draft.problem(path, *cell, "nothing settles it", "give a value, flags, or --trainer with the TrainingArguments");
      continue;
    }
    std::string value;
    From from = From::kAuto;
    const Asked* by = nullptr;
    if (param.path == "warmup_min_lr") {
      value = "0";
    } else if (param.path == "warmup_max_lr") {
      value = shortest(draft.result.config.optimizer.lr);
      by = lr;
    } else if (param.path == "warmup_num_steps") {
      const std::optional<std::int64_t> updates = warmup_updates(draft);
      if (!updates) continue;
      value = std::to_string(std::max<std::int64_t>(1, *updates));
      by = warmup;
    } else if (param.path == "total_num_steps") {
      by = steps;
      value = steps != nullptr ? std::to_string(*parse_integer(steps->values[0])) : "";
    }
    if (is_auto) {
      if (by != nullptr) from = by->from;
      if (value.empty() && param.path == "total_num_steps") {
        draft.problem(path, *cell, "the number of updates is not known", "--steps, or total_steps in --trainer");
      } else if (!value.empty()) {
        draft.put(path, value, from);
      }
      continue;
    }
    if (by == nullptr || cell->from == From::kSet || cell->value.as_number() == parse_number(value)) continue;
    draft.problem(path, *cell,
                  concat("contradicts ", by->shown,
                         param.path == "warmup_num_steps" ? concat(", which is ", value, " updates") : ""),
                  "\"auto\"");
  }
}

void scheduler_of_file(const TypeSpec& type, Draft& draft) {
  SchedulerConfig& scheduler = draft.result.config.scheduler;
  scheduler.source = Source::kConfig;
  scheduler.type = type.name;
  for (const char* key : {"schedule", "lr_schedule"}) {
    const Asked* asked = draft.find_asked(key);
    if (asked != nullptr && asked->from != From::kTrainer) {
      draft.problem("scheduler.type", *draft.find("scheduler.type"), concat("contradicts ", asked->shown), "keep one");
    }
  }
  settle_scheduler(type, draft);
  drop_other_autos(draft);
  for (const KeySpec& param : type.params) {
    const Cell* cell = draft.find(kScheduler + param.path);
    if (cell != nullptr && !cell->is_auto()) scheduler.params.emplace_back(param.path, cell->value.show());
  }
  const auto number = [&](const char* key) { return draft.number(kScheduler + key); };
  const auto integer = [&](const char* key) { return draft.integer(kScheduler + key); };
  const auto required = [&](const char* key) {
    if (draft.find(kScheduler + key) == nullptr && !draft.is_bad(kScheduler + key))
      draft.problem(kScheduler + key, draft.sections["scheduler"], "", concat(type.name, " needs it"), key);
  };
  if (type.name.starts_with("Warmup")) {
    scheduler.warmup_min_lr = number("warmup_min_lr");
    if (draft.has(kScheduler + "warmup_max_lr")) scheduler.warmup_max_lr = number("warmup_max_lr");
    scheduler.warmup_min_ratio = number("warmup_min_ratio");
    scheduler.cos_min_ratio = number("cos_min_ratio");
    scheduler.log_warmup = draft.text(kScheduler + "warmup_type") != "linear";
    scheduler.warmup_steps = integer("warmup_num_steps");
    scheduler.total_steps = integer("total_num_steps");
    if (type.name != "WarmupLR") required("total_num_steps");
    if (type.name == "WarmupDecayLR" && !scheduler.warmup_max_lr) {
      draft.report(
          Report::Level::kWarning, kScheduler + "warmup_max_lr", draft.sections["scheduler"],
          concat("absent, so WarmupDecayLR climbs to 0.001, DeepSpeed's default, and not to the optimizer's lr ",
                 shortest(draft.result.config.optimizer.lr)));
    }
    const Cell* total = draft.find(kScheduler + "total_num_steps");
    if (total != nullptr && scheduler.total_steps > 0 && scheduler.total_steps < scheduler.warmup_steps) {
      draft.report(
          Report::Level::kWarning, kScheduler + "total_num_steps", total->value.place,
          concat(scheduler.total_steps, " updates are fewer than the ", scheduler.warmup_steps, " of the warm-up"));
    }
  } else if (type.name == "OneCycle") {
    required("cycle_min_lr");
    required("cycle_max_lr");
    scheduler.cycle_min_lr = number("cycle_min_lr");
    scheduler.cycle_max_lr = number("cycle_max_lr");
    scheduler.decay_lr_rate = number("decay_lr_rate");
    scheduler.cycle_first_steps = integer("cycle_first_step_size");
    scheduler.cycle_second_steps = draft.has(kScheduler + "cycle_second_step_size") ? integer("cycle_second_step_size")
                                                                                    : scheduler.cycle_first_steps;
    scheduler.cycle_first_stairs = integer("cycle_first_stair_count");
    scheduler.cycle_second_stairs = draft.has(kScheduler + "cycle_second_stair_count")
                                        ? integer("cycle_second_stair_count")
                                        : scheduler.cycle_first_stairs;
    scheduler.decay_steps = integer("decay_step_size");
    scheduler.cycle_momentum = draft.boolean(kScheduler + "cycle_momentum");
    scheduler.cycle_min_mom = number("cycle_min_mom");
    scheduler.cycle_max_mom = number("cycle_max_mom");
    scheduler.decay_mom_rate = number("decay_mom_rate");
    if (scheduler.cycle_momentum)
      draft.refuse("scheduler.type", "OneCycle drives the optimizer's betas, which is not built yet",
                   "cycle_momentum false, or WarmupDecayLR");
  } else {
    scheduler.range_min_lr = number("lr_range_test_min_lr");
    scheduler.range_steps = integer("lr_range_test_step_size");
    scheduler.range_step_rate = number("lr_range_test_step_rate");
    scheduler.range_staircase = draft.boolean(kScheduler + "lr_range_test_staircase");
  }
}

void scheduler_of_others(Draft& draft) {
  SchedulerConfig& scheduler = draft.result.config.scheduler;
  const Asked* list = draft.find_asked("lr_schedule");
  const Asked* schedule = draft.find_asked("schedule");
  const Asked* warmup = draft.find_asked("warmup");
  if (list != nullptr) {
    if (schedule != nullptr && schedule->from != From::kTrainer)
      draft.problem(list->path, list->place, "", concat("contradicts ", schedule->shown), "keep one");
    scheduler.source = source_of(list->from);
    scheduler.type = "list";
    for (const std::string& rate : list->values) scheduler.list.push_back(*parse_number(rate));
    return;
  }
  if (schedule == nullptr && warmup == nullptr) return;
  scheduler.source = source_of((schedule != nullptr ? schedule : warmup)->from);
  scheduler.type = schedule != nullptr ? schedule->values[0] : "constant";
  scheduler.warmup_steps = warmup_updates(draft).value_or(0);
  // A warm-up is asked for: honour it rather than drop it in silence, as Hugging Face's plain "constant" does.
  if (scheduler.type == "constant" && scheduler.warmup_steps > 0) scheduler.type = "constant_with_warmup";
  const Asked* floor = draft.find_asked("min_lr_ratio");
  if (floor != nullptr) {
    scheduler.min_lr_ratio = *parse_number(floor->values[0]);
    if (scheduler.type != "cosine_with_min_lr")
      draft.problem(floor->path, floor->place, floor->values[0],
                    concat("only cosine_with_min_lr has a floor, and the schedule is ", scheduler.type),
                    "--schedule cosine_with_min_lr");
    if (scheduler.min_lr_ratio > 1)
      draft.problem(floor->path, floor->place, floor->values[0], "a share of --lr, at most 1, is expected");
  }
  const Asked* steps = draft.find_asked("steps");
  if (steps != nullptr) scheduler.total_steps = *parse_integer(steps->values[0]);
  const bool needs_end = scheduler.type == "linear" || scheduler.type.starts_with("cosine");
  if (needs_end && steps == nullptr) {
    const Asked& by = *schedule;
    draft.problem(by.path, by.place, scheduler.type,
                  "the schedule ends with the run, and the number of updates is not known", "--steps");
  }
  scheduler.params.emplace_back("num_warmup_steps", std::to_string(scheduler.warmup_steps));
  if (steps != nullptr) scheduler.params.emplace_back("num_training_steps", std::to_string(scheduler.total_steps));
  if (floor != nullptr) scheduler.params.emplace_back("min_lr_rate", floor->values[0]);
}

}  // namespace

void resolve_optimizer(Draft& draft) {
  const TypeSpec* type = section_type("optimizer", find_optimizer, deepspeed_optimizers(), draft);
  if (type != nullptr) {
    optimizer_of_file(*type, draft);
  } else if (!draft.is_bad("optimizer.type")) {
    optimizer_of_others(draft);
  }
}

void resolve_scheduler(Draft& draft) {
  const TypeSpec* type = section_type("scheduler", find_scheduler, deepspeed_schedulers(), draft);
  if (type != nullptr) {
    scheduler_of_file(*type, draft);
  } else if (!draft.is_bad("scheduler.type")) {
    scheduler_of_others(draft);
  }
}

}  // namespace intarsia::config
