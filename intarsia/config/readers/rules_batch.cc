// The batch identity, precision, and how a key and a flag that mean the same are brought together.
#include <algorithm>
#include <cmath>

#include "intarsia/base/text.h"
#include "intarsia/config/readers/deepspeed_rules.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

const char* const kTotal = "train_batch_size";
const char* const kMicro = "train_micro_batch_size_per_gpu";
const char* const kSteps = "gradient_accumulation_steps";

std::string as_json(const Asked& asked) {
  return asked.values.size() > 1 ? concat("[", join(asked.values), "]") : asked.values[0];
}

bool same(const formats::JsonValue& value, const Asked& asked) {
  if (value.kind == formats::JsonValue::Kind::kArray) {
    if (value.items.size() != asked.values.size()) return false;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (value.items[i].as_number() != parse_number(asked.values[i])) return false;
    }
    return true;
  }
  if (value.kind == formats::JsonValue::Kind::kBool)
    return parse_number(asked.values[0]) == (value.boolean ? 1.0 : 0.0);
  return value.as_number() == parse_number(asked.values[0]);
}

const char* flag_of(const char* key) { return find_flag_by_key(key)->name.c_str(); }

void unresolved(const std::string& path, const char* key, Draft& draft) {
  draft.problem(path, *draft.find(path), "nothing settles it",
                concat("give a value, ", flag_of(key), ", or --trainer with the TrainingArguments"));
}

// The given part of the trio, or nothing.
std::optional<std::int64_t> part(const char* path, const Draft& draft) {
  if (!draft.has(path)) return std::nullopt;
  return draft.integer(path);
}

// a * b, or the largest number: three accepted 64-bit numbers may overflow 64 bits.
std::int64_t product(std::int64_t a, std::int64_t b) {
  const __int128 full = static_cast<__int128>(a) * b;
  return full > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(full);
}

// The multiple of `unit` that is nearest to `value`, at least one.
std::int64_t nearest_multiple(std::int64_t value, std::int64_t unit) {
  const std::int64_t rest = value % unit;
  const std::int64_t rounded = value / unit + (rest >= unit - rest ? 1 : 0);
  return product(std::max<std::int64_t>(1, rounded), unit);
}

void batch_problem(Draft& draft, std::string value, std::string message, std::string suggestion) {
  for (const char* path : {kTotal, kMicro, kSteps}) {
    const Cell* cell = draft.find(path);
    if (cell == nullptr || cell->value.place.line == 0) continue;
    draft.problem(path, cell->value.place, std::move(value), std::move(message), std::move(suggestion));
    return;
  }
  draft.problem(kTotal, {}, std::move(value), std::move(message), std::move(suggestion));
}

// "auto" for the micro-batch that nothing settles, where the planner follows: it chooses among what the total and the
// accumulation allow. Until then the largest stands there.
void leave_open(Draft& draft) {
  BatchConfig& batch = draft.result.config.batch;
  batch.micro_is_open = true;
  if (const std::optional<std::int64_t> total = part(kTotal, draft)) {
    if (*total % draft.ranks != 0) {
      batch_problem(draft, std::to_string(*total),
                    concat("train_batch_size ", *total, " is not a multiple of ", draft.ranks, " ranks"),
                    std::to_string(nearest_multiple(*total, draft.ranks)));
      return;
    }
    batch.total_is_given = true;
    batch.train_batch_size = *total;
    batch.micro_batch_size = *total / draft.ranks;
  } else {
    settle(kSteps, "accumulation", "1", true, draft);
    if (draft.is_bad(kSteps)) return;
    batch.accumulation = part(kSteps, draft).value_or(1);
    batch.train_batch_size = product(batch.accumulation, draft.ranks);
  }
  const auto put = [&](const char* path, std::int64_t value) { draft.put(path, std::to_string(value), From::kAuto); };
  if (!batch.total_is_given) put(kTotal, batch.train_batch_size);
  put(kMicro, batch.micro_batch_size);
  if (!draft.has(kSteps)) put(kSteps, batch.accumulation);
}

}  // namespace

bool take_auto(const char* key, const std::string& path, Draft& draft) {
  const Asked* asked = draft.find_asked(key);
  if (asked == nullptr || asked->values[0] != "auto") return false;
  const Cell* cell = draft.find(path);
  if (cell == nullptr) draft.put(path, "\"auto\"", asked->from);
  draft.asked.erase(key);
  return cell == nullptr || cell->is_auto();
}

void settle(const std::string& path, const char* key, const char* hf_default, bool fill_absent, Draft& draft) {
  if (draft.is_bad(path)) return;
  const Cell* cell = draft.find(path);
  const Asked* asked = draft.find_asked(key);
  if (cell != nullptr && !cell->is_auto()) {
    if (asked == nullptr || same(cell->value, *asked)) return;
    if (cell->from == From::kSet) return;
    if (asked->from == From::kSet) {
      draft.put(path, as_json(*asked), From::kSet);
      return;
    }
    draft.problem(path, *cell, concat("contradicts ", asked->shown),
                  asked->from == From::kTrainer ? "\"auto\", which takes the trainer's value"
                                                : "\"auto\", or leave the flag out, or use --set");
    return;
  }
  if (asked != nullptr) {
    if (cell == nullptr && asked->from == From::kTrainer && !fill_absent) {
      const KeySpec* spec = find_deepspeed_key(path);
      const std::string in_force = spec != nullptr ? spec->fallback : "DeepSpeed's default";
      if (spec != nullptr && !spec->fallback.empty() && parse_number(spec->fallback) == parse_number(asked->values[0]))
        return;
      draft.refuse(
          path,
          concat("the file leaves it out, so ", asked->shown, " does not reach DeepSpeed; in force is ", in_force),
          "\"auto\"");
      return;
    }
    draft.put(path, as_json(*asked), asked->from);
    return;
  }
  if (cell == nullptr) return;
  if (!draft.auto_defaults()) {
    unresolved(path, key, draft);
    return;
  }
  draft.put(path, hf_default, From::kAuto);
}

void resolve_precision(Draft& draft) {
  const Asked* dtype = draft.find_asked("dtype");
  const std::string wanted = dtype != nullptr ? dtype->values[0] : "";
  for (const char* name : {"fp16", "bf16"}) {
    const std::string path = std::string(name) + ".enabled";
    const Cell* cell = draft.find(path);
    if (cell == nullptr) {
      if (dtype != nullptr) draft.put(path, wanted == name ? "true" : "false", dtype->from);
      continue;
    }
    if (cell->is_auto()) {
      if (dtype == nullptr && !draft.auto_defaults()) {
        unresolved(path, "dtype", draft);
      } else {
        draft.put(path, wanted == name ? "true" : "false", dtype != nullptr ? dtype->from : From::kAuto);
      }
      continue;
    }
    if (dtype == nullptr || cell->value.boolean == (wanted == name)) continue;
    if (dtype->from == From::kSet || cell->from == From::kSet) {
      if (cell->from != From::kSet) draft.put(path, wanted == name ? "true" : "false", From::kSet);
      continue;
    }
    draft.problem(path, *cell, concat("contradicts ", dtype->shown), "\"auto\"");
  }
  const bool fp16 = draft.boolean("fp16.enabled");
  const bool bf16 = draft.boolean("bf16.enabled");
  if (fp16 && bf16 && !draft.is_bad("fp16.enabled") && !draft.is_bad("bf16.enabled")) {
    draft.problem("fp16.enabled", draft.sections["fp16"], "true",
                  "bf16.enabled is true as well, and a run computes in one type", "keep bf16.enabled or fp16.enabled");
  }
  TrainConfig& config = draft.result.config;
  config.precision = bf16 ? Precision::kBf16 : fp16 ? Precision::kFp16 : Precision::kFp32;
  config.bf16_masters = bf16 && draft.boolean("bf16.bf16_master_weights_and_grads");
  config.bf16_optimizer_states = bf16 && draft.boolean("bf16.bf16_optimizer_states");
  if (!fp16) return;
  LossScaleConfig& scale = config.loss_scale;
  const double fixed = draft.number("fp16.loss_scale");
  scale.mode = fixed > 0 ? LossScaleConfig::Mode::kStatic : LossScaleConfig::Mode::kDynamic;
  scale.value = fixed;
  scale.initial =
      std::ldexp(1.0, static_cast<int>(std::min<std::int64_t>(1000, draft.integer("fp16.initial_scale_power"))));
  scale.window = draft.integer("fp16.loss_scale_window");
  scale.hysteresis = draft.integer("fp16.hysteresis");
  scale.consecutive_hysteresis = draft.boolean("fp16.consecutive_hysteresis");
  scale.min = draft.number("fp16.min_loss_scale");
}

void resolve_batch(Draft& draft) {
  const std::int64_t ranks = draft.ranks;
  take_auto("batch_size", kMicro, draft);
  if (draft.is_bad(kMicro) || draft.is_bad(kSteps) || draft.is_bad(kTotal)) return;
  const auto is_auto = [&](const char* path) { return draft.find(path) != nullptr && draft.find(path)->is_auto(); };
  if (!draft.auto_defaults()) {
    bool open = false;
    for (const auto& [path, key] :
         {std::pair{kTotal, "batch_size"}, {kMicro, "batch_size"}, {kSteps, "accumulation"}}) {
      if (!is_auto(path)) continue;
      unresolved(path, key, draft);
      open = true;
    }
    if (open) return;
  }
  // With the total given, the identity settles an "auto" that no flag settles.
  if (is_auto(kTotal)) draft.cells.erase(kTotal);
  const bool steps_given = draft.has(kSteps) || draft.find_asked("accumulation") != nullptr;
  if (draft.input.planner_follows && is_auto(kMicro) && draft.find_asked("batch_size") == nullptr &&
      !draft.trainer_given && !(draft.has(kTotal) && steps_given))
    return leave_open(draft);
  if (draft.has(kTotal)) {
    if (is_auto(kMicro) && draft.find_asked("batch_size") == nullptr) draft.cells.erase(kMicro);
    if (is_auto(kSteps) && draft.find_asked("accumulation") == nullptr) draft.cells.erase(kSteps);
  } else if (is_auto(kMicro) && draft.find_asked("batch_size") == nullptr && !draft.trainer_given) {
    draft.problem(kMicro, *draft.find(kMicro), "nothing says how many samples a rank takes in one pass",
                  "give --batch-size");
    return;
  }
  // Hugging Face's own defaults are 8 samples and 1 step.
  settle(kMicro, "batch_size", "8", true, draft);
  settle(kSteps, "accumulation", "1", true, draft);
  if (draft.is_bad(kMicro) || draft.is_bad(kSteps)) return;
  std::optional<std::int64_t> total = part(kTotal, draft);
  std::optional<std::int64_t> micro = part(kMicro, draft);
  std::optional<std::int64_t> steps = part(kSteps, draft);
  if (!total && !micro) {
    if (!draft.input.file.empty()) {
      draft.problem(kTotal, {}, "",
                    "no batch size: neither train_batch_size nor train_micro_batch_size_per_gpu is given",
                    "train_micro_batch_size_per_gpu, or --batch-size");
      return;
    }
    micro = 1;
  }
  const auto not_divisible = [&](std::int64_t unit, const std::string& factors) {
    batch_problem(draft, std::to_string(*total),
                  concat("train_batch_size ", *total, " is not a multiple of ", factors, " = ", unit),
                  std::to_string(nearest_multiple(*total, unit)));
  };
  if (total && micro && steps) {
    const std::int64_t right = product(product(*micro, *steps), ranks);
    if (*total != right) {
      batch_problem(draft, std::to_string(*total),
                    concat(*total, " != ", *micro, "*", *steps, "*", ranks, " = ", right,
                           " (micro-batch * accumulation steps * data-parallel ranks)"),
                    std::to_string(right));
      return;
    }
  } else if (total && micro) {
    const std::int64_t unit = product(*micro, ranks);
    if (*total % unit != 0) return not_divisible(unit, concat("micro-batch ", *micro, " * ", ranks, " ranks"));
    steps = *total / unit;
  } else if (total) {
    const std::int64_t unit = product(steps.value_or(1), ranks);
    if (*total % unit != 0)
      return not_divisible(unit, concat(steps ? concat("accumulation steps ", *steps, " * ") : "", ranks, " ranks"));
    micro = *total / unit;
    steps = steps.value_or(1);
  } else {
    steps = steps.value_or(1);
    total = product(product(*micro, *steps), ranks);
  }
  draft.result.config.batch = {*total, *micro, *steps};
  for (const auto& [path, value] : {std::pair{kTotal, *total}, {kMicro, *micro}, {kSteps, *steps}}) {
    if (!draft.has(path)) draft.put(path, std::to_string(value), From::kAuto);
  }
}

}  // namespace intarsia::config
