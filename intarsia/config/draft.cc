#include "intarsia/config/draft.h"

#include <utility>

#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

formats::JsonValue value_of_text(std::string_view text) {
  formats::JsonValue value;
  value.kind = formats::JsonValue::Kind::kNumber;
  value.text = text;
  return value;
}

// The schema's entry of a canonical path, also inside optimizer.params and scheduler.params.
const KeySpec* spec_of(const Draft& draft, std::string_view path) {
  for (const auto& [prefix, type_path] :
       {std::pair{"optimizer.params.", "optimizer.type"}, {"scheduler.params.", "scheduler.type"}}) {
    if (!path.starts_with(prefix)) continue;
    const Cell* type = draft.find(type_path);
    if (type == nullptr) return nullptr;
    const TypeSpec* spec = type_path[0] == 'o' ? find_optimizer(type->value.text) : find_scheduler(type->value.text);
    if (spec == nullptr) return nullptr;
    for (const KeySpec& param : spec->params) {
      if (param.path == path.substr(std::string_view(prefix).size())) return &param;
    }
    return nullptr;
  }
  return find_deepspeed_key(path);
}

formats::JsonValue in_force(const Draft& draft, std::string_view path) {
  const Cell* cell = draft.find(path);
  if (cell != nullptr && !cell->is_auto()) return cell->value;
  const KeySpec* spec = spec_of(draft, path);
  return spec == nullptr || spec->fallback.empty() ? formats::JsonValue{}
                                                   : formats::parse_json(spec->fallback, "default");
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  try {
    return formats::parse_json(text, "").as_number();
  } catch (const formats::JsonError&) {
    return std::nullopt;
  }
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  const std::optional<double> number = parse_number(text);
  return number ? value_of_text(text).as_integer() : std::nullopt;
}

std::string origin_text(From from, const std::string& file, formats::JsonPlace place) {
  switch (from) {
    case From::kFile:
      return concat(file, ":", place.line);
    case From::kSet:
      return "--set";
    case From::kFlag:
      return "flag";
    case From::kTrainer:
      return "trainer";
    case From::kAuto:
      return "auto";
    case From::kDefault:
      break;
  }
  return "default";
}

bool Draft::auto_defaults() const {
  if (input.for_training || trainer_given) return true;
  for (const char* key :
       {"batch_size", "accumulation", "lr", "weight_decay", "betas", "eps", "warmup", "schedule", "clip"}) {
    const Asked* by = find_asked(key);
    if (by != nullptr) return true;
  }
  return false;
}

const Cell* Draft::find(std::string_view path) const {
  const auto found = cells.find(path);
  return found == cells.end() ? nullptr : &found->second;
}

const Asked* Draft::find_asked(std::string_view key) const {
  const auto found = asked.find(key);
  return found == asked.end() ? nullptr : &found->second;
}

bool Draft::has(std::string_view path) const {
  const Cell* cell = find(path);
  return cell != nullptr && !cell->is_auto();
}

bool Draft::boolean(std::string_view path) const { return in_force(*this, path).boolean; }

std::int64_t Draft::integer(std::string_view path) const {
  const formats::JsonValue value = in_force(*this, path);
  // A bare boolean is the deprecated form of zero_optimization.stage.
  if (value.kind == formats::JsonValue::Kind::kBool) return value.boolean ? 1 : 0;
  return value.as_integer().value_or(0);
}

double Draft::number(std::string_view path) const { return in_force(*this, path).as_number().value_or(0); }
std::string Draft::text(std::string_view path) const { return in_force(*this, path).text; }

void Draft::put(const std::string& path, std::string_view json, From from) {
  const Cell* before = find(path);
  Cell cell{formats::parse_json(json, path), from, before != nullptr ? before->key_place : formats::JsonPlace{}};
  if (before != nullptr) cell.value.place = before->value.place;
  cells[path] = std::move(cell);
}

void Draft::problem(std::string path, formats::JsonPlace at, std::string value, std::string message,
                    std::string suggestion) {
  bad.insert(path);
  const std::string file = at.line > 0 ? input.file : std::string();
  problems.push_back(
      {std::move(path), file, at.line, at.column, std::move(value), std::move(message), std::move(suggestion)});
}

void Draft::problem(const std::string& path, const Cell& cell, std::string message, std::string suggestion) {
  problem(path, cell.value.place, cell.value.show(), std::move(message), std::move(suggestion));
}

void Draft::report(Report::Level level, std::string path, formats::JsonPlace at, std::string message) {
  result.reports.push_back(
      {level, std::move(path), at.line > 0 ? input.file : std::string(), at.line, std::move(message)});
}

void Draft::refuse(const std::string& path, std::string message, std::string suggestion) {
  const Cell* cell = find(path);
  const auto section = sections.find(path);
  formats::JsonPlace at = cell != nullptr             ? cell->value.place
                          : section != sections.end() ? section->second
                                                      : formats::JsonPlace{};
  const std::string value = cell != nullptr ? cell->value.show() : std::string();
  report(Report::Level::kWarning, path, at, concat("train refuses this: ", message));
  result.refusals.push_back({path, at.line > 0 ? input.file : std::string(), at.line, at.column, value,
                             std::move(message), std::move(suggestion)});
}

}  // namespace intarsia::config
