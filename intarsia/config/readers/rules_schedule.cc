// The schedule of the learning rate.
#include <algorithm>
#include <cmath>

#include "intarsia/base/text.h"
#include "intarsia/config/readers/deepspeed_rules.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

using Kind = formats::JsonValue::Kind;

const std::string kScheduler = "scheduler.params.";
const char* const kAuto = "\"auto\"";

Source source_of(From from) { return from == From::kTrainer ? Source::kTrainer : Source::kFlag; }

// The run's length in updates, if something says it now. Else it is known when the data have been opened.
std::optional<std::int64_t> known_updates(const Draft& draft) {
  const Asked* steps = draft.find_asked("steps");
  return steps != nullptr ? parse_integer(steps->values[0]) : std::nullopt;
}

// Sets warmup_steps; a warm-up below 1 is a share of all updates, rounded up, which may have to wait for the length.
void read_warmup(SchedulerConfig& scheduler, Draft& draft) {
  const Asked* asked = draft.find_asked("warmup");
  if (asked == nullptr) return;
  const double warmup = *parse_number(asked->values[0]);
  if (warmup > 1e15 || (warmup > 1 && warmup != std::floor(warmup))) {
    draft.problem(asked->path, asked->place, asked->values[0],
                  "a whole number of updates, or a share below 1, is expected");
    return;
  }
  if (warmup >= 1 || warmup == 0) {
    scheduler.warmup_steps = static_cast<std::int64_t>(warmup);
    return;
  }
  scheduler.warmup_share = warmup;
  const std::optional<std::int64_t> updates = known_updates(draft);
  if (!updates) return;
  scheduler.warmup_steps = static_cast<std::int64_t>(std::ceil(warmup * static_cast<double>(*updates)));
  scheduler.warmup_share = 0;
}

// The scheduler's "auto" parameters, and contradictions with flags or trainer. What depends on the run's length and
// cannot be known yet stays "auto".
void settle_scheduler(const TypeSpec& type, SchedulerConfig& scheduler, Draft& draft) {
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
    const Asked* by = nullptr;
    if (param.path == "warmup_min_lr") {
      value = "0";
    } else if (param.path == "warmup_max_lr") {
      value = shortest(draft.result.config.optimizer.lr);
      by = lr;
    } else if (param.path == "warmup_num_steps") {
      read_warmup(scheduler, draft);
      by = warmup;
      if (scheduler.warmup_share == 0) value = std::to_string(std::max<std::int64_t>(1, scheduler.warmup_steps));
      if (!is_auto) scheduler.warmup_share = 0;
    } else if (param.path == "total_num_steps") {
      by = steps;
      if (steps != nullptr) value = std::to_string(*known_updates(draft));
    }
    if (is_auto) {
      if (!value.empty()) draft.put(path, value, by != nullptr ? by->from : From::kAuto);
      continue;
    }
    if (by == nullptr || value.empty() || cell->from == From::kSet || cell->value.as_number() == parse_number(value))
      continue;
    draft.problem(path, *cell,
                  concat("contradicts ", by->shown,
                         param.path == "warmup_num_steps" ? concat(", which is ", value, " updates") : ""),
                  kAuto);
  }
}

// "auto" that has no rule takes DeepSpeed's default; the two that wait for the run's length stay.
bool waits_for_length(const std::string& path, const Draft& draft) {
  const Cell* cell = draft.find(path);
  return cell != nullptr && cell->is_auto() &&
         (path == kScheduler + "total_num_steps" || path == kScheduler + "warmup_num_steps");
}

void read_warmup_type(const TypeSpec& type, SchedulerConfig& scheduler, Draft& draft) {
  const auto number = [&](const char* key) { return draft.number(kScheduler + key); };
  scheduler.warmup_min_lr = number("warmup_min_lr");
  if (draft.has(kScheduler + "warmup_max_lr")) scheduler.warmup_max_lr = number("warmup_max_lr");
  scheduler.warmup_min_ratio = number("warmup_min_ratio");
  scheduler.cos_min_ratio = number("cos_min_ratio");
  scheduler.log_warmup = draft.text(kScheduler + "warmup_type") != "linear";
  if (scheduler.warmup_share == 0) scheduler.warmup_steps = draft.integer(kScheduler + "warmup_num_steps");
  scheduler.total_steps = draft.integer(kScheduler + "total_num_steps");
  if (type.name == "WarmupDecayLR" && !scheduler.warmup_max_lr) {
    draft.report(Report::Level::kWarning, kScheduler + "warmup_max_lr", draft.sections["scheduler"],
                 concat("absent, so WarmupDecayLR climbs to 0.001, DeepSpeed's default, and not to the optimizer's lr ",
                        shortest(draft.result.config.optimizer.lr)));
  }
  const Cell* total = draft.find(kScheduler + "total_num_steps");
  if (total != nullptr && scheduler.total_steps > 0 && scheduler.total_steps < scheduler.warmup_steps) {
    draft.report(
        Report::Level::kWarning, kScheduler + "total_num_steps", total->value.place,
        concat(scheduler.total_steps, " updates are fewer than the ", scheduler.warmup_steps, " of the warm-up"));
  }
}

void read_one_cycle(SchedulerConfig& scheduler, Draft& draft) {
  const auto number = [&](const char* key) { return draft.number(kScheduler + key); };
  const auto integer = [&](const char* key) { return draft.integer(kScheduler + key); };
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
  const TypeSpec* optimizer = find_optimizer(draft.result.config.optimizer.type);
  const bool has_betas = optimizer == nullptr || optimizer->has("betas");
  if (!scheduler.cycle_momentum || has_betas) return;
  scheduler.cycle_momentum = false;
  draft.report(Report::Level::kNote, kScheduler + "cycle_momentum", draft.sections["scheduler"],
               concat(optimizer->name, " has no betas, so nothing but the rate cycles, as in DeepSpeed"));
}

void scheduler_of_file(const TypeSpec& type, Draft& draft) {
  SchedulerConfig& scheduler = draft.result.config.scheduler;
  scheduler.source = Source::kConfig;
  scheduler.type = type.name;
  for (const char* key : {"schedule", "lr_schedule", "schedule_params"}) {
    const Asked* asked = draft.find_asked(key);
    if (asked != nullptr && asked->from != From::kTrainer) {
      draft.problem("scheduler.type", *draft.find("scheduler.type"), concat("contradicts ", asked->shown), "keep one");
    }
  }
  settle_scheduler(type, scheduler, draft);
  for (const KeySpec& param : type.params) {
    const std::string path = kScheduler + param.path;
    const Cell* cell = draft.find(path);
    if (cell != nullptr && (!cell->is_auto() || waits_for_length(path, draft)))
      scheduler.params.emplace_back(param.path, cell->value.show());
  }
  const auto required = [&](const char* key) {
    if (draft.find(kScheduler + key) == nullptr && !draft.is_bad(kScheduler + key))
      draft.problem(kScheduler + key, draft.sections["scheduler"], "", concat(type.name, " needs it"), key);
  };
  if (type.name.starts_with("Warmup")) {
    read_warmup_type(type, scheduler, draft);
    if (type.name != "WarmupLR") required("total_num_steps");
  } else if (type.name == "OneCycle") {
    required("cycle_min_lr");
    required("cycle_max_lr");
    read_one_cycle(scheduler, draft);
  } else {
    scheduler.range_min_lr = draft.number(kScheduler + "lr_range_test_min_lr");
    scheduler.range_steps = draft.integer(kScheduler + "lr_range_test_step_size");
    scheduler.range_step_rate = draft.number(kScheduler + "lr_range_test_step_rate");
    scheduler.range_staircase = draft.boolean(kScheduler + "lr_range_test_staircase");
  }
}

// Hugging Face's lr_scheduler_kwargs: which schedule knows which, by the names of transformers.
class ScheduleParams {
 public:
  ScheduleParams(SchedulerConfig& scheduler, Draft& draft)
      : scheduler_(scheduler), draft_(draft), asked_(draft.find_asked("schedule_params")) {}

  void read() {
    if (asked_ != nullptr) {
      const formats::JsonValue value = formats::parse_json(asked_->values[0], asked_->path);
      if (value.kind != Kind::kObject) return wrong("", value.show(), "an object in braces is expected");
      for (const formats::JsonMember& member : value.members) member_of(member);
    }
    if (scheduler_.type == "warmup_stable_decay" && scheduler_.num_decay_steps == 0) {
      const Asked& by = *draft_.find_asked("schedule");
      draft_.problem(by.path, by.place, scheduler_.type, "the schedule needs num_decay_steps, the updates of its fall",
                     "--schedule-params '{\"num_decay_steps\": 100}'");
    }
  }

 private:
  void member_of(const formats::JsonMember& member) {
    const std::string& name = member.key;
    const formats::JsonValue& value = member.value;
    const std::vector<std::string> known = names();
    if (std::ranges::find(known, name) == known.end())
      return wrong(name, value.show(),
                   concat("not a parameter of ", scheduler_.type,
                          known.empty() ? ", which has none" : concat(", which has ", join(known))));
    if (name == "warmup_type" || name == "decay_type") {
      static const std::vector<std::string> kRamps = {"linear", "cosine", "1-sqrt"};
      if (std::ranges::find(kRamps, value.text) == kRamps.end())
        return wrong(name, value.show(), "linear, cosine or 1-sqrt is expected");
      (name == "warmup_type" ? scheduler_.warmup_type : scheduler_.decay_type) = value.text;
      scheduler_.params.emplace_back(name, value.show());
      return;
    }
    const std::optional<double> number = value.as_number();
    const bool whole = name.starts_with("num_") && name.ends_with("_steps");
    if (!number || !std::isfinite(*number) || *number < 0 || ((whole || name == "timescale") && !value.as_integer()))
      return wrong(name, value.show(), "a number of at least 0 is expected, whole for updates");
    set(name, *number, value);
    scheduler_.params.emplace_back(name, value.show());
  }

  void set(const std::string& name, double number, const formats::JsonValue& value) {
    const double lr = draft_.result.config.optimizer.lr;
    if (name == "num_cycles") scheduler_.num_cycles = number;
    if (name == "power") scheduler_.power = number;
    if (name == "timescale") scheduler_.timescale = *value.as_integer();
    if (name == "num_stable_steps") scheduler_.num_stable_steps = *value.as_integer();
    if (name == "num_decay_steps") scheduler_.num_decay_steps = *value.as_integer();
    if (name == "min_lr_rate" || name == "min_lr_ratio") {
      scheduler_.min_lr_ratio = number;
      if (number > 1) wrong(name, value.show(), "a share of the learning rate, at most 1, is expected");
    }
    if (name == "min_lr") {
      if (number > lr)
        return wrong(name, value.show(), concat("at most the learning rate, ", shortest(lr), ", is expected"));
      scheduler_.min_lr_ratio = lr > 0 ? number / lr : 0;
    }
    if (name == "lr_end") {
      scheduler_.lr_end = number;
      if (number >= lr)
        wrong(name, value.show(), concat("less than the learning rate, ", shortest(lr), ", is expected"));
    }
  }

  std::vector<std::string> names() const {
    const std::string& type = scheduler_.type;
    if (type == "cosine" || type == "cosine_with_restarts") return {"num_cycles"};
    if (type == "cosine_with_min_lr") return {"min_lr", "min_lr_rate", "num_cycles"};
    if (type == "polynomial") return {"lr_end", "power"};
    if (type == "inverse_sqrt") return {"timescale"};
    if (type == "warmup_stable_decay")
      return {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"};
    return {};
  }

  void wrong(const std::string& name, const std::string& value, std::string message) {
    draft_.problem(name.empty() ? asked_->path : concat(asked_->path, ".", name), asked_->place, value,
                   std::move(message), nearest(name, names()).value_or(""));
  }

  SchedulerConfig& scheduler_;
  Draft& draft_;
  const Asked* asked_;
};

void read_floor(SchedulerConfig& scheduler, Draft& draft) {
  const Asked* floor = draft.find_asked("min_lr_ratio");
  if (floor == nullptr) return;
  scheduler.min_lr_ratio = *parse_number(floor->values[0]);
  if (scheduler.type != "cosine_with_min_lr" && scheduler.type != "warmup_stable_decay")
    draft.problem(
        floor->path, floor->place, floor->values[0],
        concat("only cosine_with_min_lr and warmup_stable_decay have a floor, and the schedule is ", scheduler.type),
        "--schedule cosine_with_min_lr");
  if (scheduler.min_lr_ratio > 1)
    draft.problem(floor->path, floor->place, floor->values[0], "a share of --lr, at most 1, is expected");
  scheduler.params.emplace_back(scheduler.type == "cosine_with_min_lr" ? "min_lr_rate" : "min_lr_ratio",
                                floor->values[0]);
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
  if (schedule == nullptr && warmup == nullptr) {
    const Asked* params = draft.find_asked("schedule_params");
    if (params != nullptr)
      draft.problem(params->path, params->place, params->values[0], "without a schedule they say nothing",
                    "--schedule NAME");
    return;
  }
  scheduler.source = source_of((schedule != nullptr ? schedule : warmup)->from);
  scheduler.type = schedule != nullptr ? schedule->values[0] : "constant";
  read_warmup(scheduler, draft);
  const bool warms_up = scheduler.warmup_steps > 0 || scheduler.warmup_share > 0;
  // A warm-up is asked for: honour it rather than drop it in silence, as Hugging Face's plain "constant" does.
  if (scheduler.type == "constant" && warms_up) scheduler.type = "constant_with_warmup";
  const std::optional<std::int64_t> updates = known_updates(draft);
  scheduler.total_steps = updates.value_or(0);
  scheduler.params.emplace_back("num_warmup_steps",
                                scheduler.warmup_share > 0 ? kAuto : std::to_string(scheduler.warmup_steps));
  const bool has_end =
      scheduler.type != "constant" && scheduler.type != "constant_with_warmup" && scheduler.type != "inverse_sqrt";
  if (updates || has_end)
    scheduler.params.emplace_back("num_training_steps", updates ? std::to_string(*updates) : kAuto);
  read_floor(scheduler, draft);
  ScheduleParams(scheduler, draft).read();
}

}  // namespace

void resolve_scheduler(Draft& draft) {
  const TypeSpec* type = section_type("scheduler", draft);
  if (type != nullptr) {
    scheduler_of_file(*type, draft);
  } else if (!draft.is_bad("scheduler.type")) {
    scheduler_of_others(draft);
  }
}

}  // namespace intarsia::config
