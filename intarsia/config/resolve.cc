#include "intarsia/config/resolve.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "intarsia/base/text.h"
#include "intarsia/config/asked.h"
#include "intarsia/config/draft.h"
#include "intarsia/config/readers/deepspeed_reader.h"
#include "intarsia/config/readers/deepspeed_rules.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

using formats::JsonMember;
using formats::JsonValue;

// Marks everything in `value` as coming from nowhere in the file.
void clear_places(JsonValue& value) {
  value.place = {};
  for (JsonValue& item : value.items) clear_places(item);
  for (JsonMember& member : value.members) {
    member.place = {};
    clear_places(member.value);
  }
}

JsonMember* find_member(JsonValue& object, const std::string& key) {
  for (JsonMember& member : object.members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

// Writes one --set PATH=VALUE into the file's tree.
void apply_set(const std::string& text, JsonValue& root, Draft& draft) {
  const std::size_t equal = text.find('=');
  if (equal == std::string::npos || equal == 0) {
    draft.problem("--set", {}, text, "PATH=VALUE is expected", "--set zero_optimization.stage=2");
    return;
  }
  const std::string path = text.substr(0, equal);
  JsonMember leaf;
  try {
    leaf.value = formats::parse_json(text.substr(equal + 1), "--set");
  } catch (const formats::JsonError&) {
    leaf.value.kind = JsonValue::Kind::kString;  // a bare word is text
    leaf.value.text = text.substr(equal + 1);
  }
  clear_places(leaf.value);
  JsonValue* at = &root;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = path.find('.', begin);
    const std::string key = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    JsonMember* member = find_member(*at, key);
    if (member == nullptr) {
      at->kind = JsonValue::Kind::kObject;
      at->members.push_back({key, {}, {}});
      member = &at->members.back();
    }
    if (dot == std::string::npos) {
      member->value = std::move(leaf.value);
      member->place = {};
      return;
    }
    at = &member->value;
    begin = dot + 1;
  }
}

void read_file(Draft& draft) {
  JsonValue root;
  root.kind = JsonValue::Kind::kObject;
  if (!draft.input.file.empty()) {
    try {
      root = draft.input.text.empty() ? formats::read_json_file(draft.input.file)
                                      : formats::parse_json(draft.input.text, draft.input.file);
    } catch (const formats::JsonError& error) {
      draft.problem(error.path(), error.place(), error.value(), error.detail());
      return;
    } catch (const Error& error) {  // not there, not readable, too large
      draft.problem("", formats::JsonPlace{}, "", error.what());
      return;
    }
  }
  for (const std::string& set : draft.input.sets) apply_set(set, root, draft);
  read_deepspeed(root, draft);
  for (auto& [path, cell] : draft.cells) {
    if (cell.value.place.line == 0 && cell.from == From::kFile) cell.from = From::kSet;
  }
}

void collect_values(Draft& draft) {
  Resolved& result = draft.result;
  for (const KeySpec& spec : deepspeed_keys()) {
    if (!spec.fallback.empty()) {
      result.values[spec.path] = spec.fallback;
      result.origins[spec.path] = "default";
    }
  }
  for (const auto& [path, cell] : draft.cells) {
    result.values[path] = cell.value.show(std::string::npos - 4);
    const bool in_file = cell.from == From::kFile && cell.value.place.line > 0;
    result.origins[path] = in_file ? origin_text(From::kFile, draft.input.file, cell.value.place)
                                   : origin_text(cell.from, draft.input.file, {});
  }
  for (const FlagSpec& flag : run_flags()) {
    const Asked* asked = draft.find_asked(flag.key);
    const std::string path = "intarsia." + flag.key;
    result.origins[path] = asked == nullptr ? "default" : origin_text(asked->from, draft.input.file, asked->place);
    if (asked != nullptr) result.values[path] = join(asked->values, " ");
  }
}

}  // namespace

std::string Problem::text() const {
  std::string out;
  if (!file.empty()) out += file + ":";
  if (line > 0) out += concat(line, ":", column, ":");
  if (!out.empty()) out += ' ';
  if (!path.empty()) out += path + ": ";
  if (!value.empty()) out += value + ": ";
  out += message;
  if (!suggestion.empty()) out += "; suggestion: " + suggestion;
  return out;
}

std::string Report::text() const {
  std::string out = level == Level::kWarning ? "warning: " : "note: ";
  if (!path.empty()) out += path + ": ";
  out += message;
  if (line > 0) out += concat(" (", file, ":", line, ")");
  return out;
}

ConfigError::ConfigError(std::vector<Problem> problems)
    : Error(ErrorKind::kConfig,
            [&] {
              std::vector<std::string> lines;
              for (const Problem& problem : problems) lines.push_back(problem.text());
              return join(lines, "\n");
            }()),
      problems_(std::move(problems)) {}

Resolved resolve(const ResolveInput& input) {
  Draft draft(input);
  draft.hidden_size = input.model.hidden_size;
  INTARSIA_INVARIANT(input.ranks >= 1, "ranks ", input.ranks);
  read_file(draft);
  // A file that is not JSON says nothing further.
  const bool readable = draft.problems.empty() || !draft.cells.empty() || !draft.sections.empty();
  if (readable) {
    read_flags(draft);
    read_trainer_arguments(draft);
    const Asked* ranks = draft.find_asked("ranks");
    draft.ranks = ranks != nullptr ? *parse_integer(ranks->values[0]) : input.ranks;
    resolve_precision(draft);
    resolve_autocast(draft);
    resolve_batch(draft);
    resolve_zero(draft);
    resolve_sections(draft);
    resolve_optimizer(draft);
    resolve_scheduler(draft);
    resolve_run(draft);
  }
  if (!draft.problems.empty()) {
    std::stable_sort(draft.problems.begin(), draft.problems.end(), [](const Problem& a, const Problem& b) {
      return std::tie(a.line, a.column) < std::tie(b.line, b.column);
    });
    throw ConfigError(std::move(draft.problems));
  }
  collect_values(draft);
  return std::move(draft.result);
}

std::vector<Problem> check_trainable(const Resolved& resolved) { return resolved.refusals; }

}  // namespace intarsia::config
