#include "intarsia/config/asked.h"

#include <algorithm>
#include <cmath>

#include "intarsia/base/text.h"

namespace intarsia::config {
namespace {

using formats::JsonMember;
using formats::JsonValue;
using Kind = JsonValue::Kind;

// Nothing when `text` is a value of the flag; else what is expected.
std::string objection(const FlagSpec& spec, const std::string& text) {
  if (!spec.choices.empty()) {
    if (std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end()) return {};
    const std::string words = concat("one of ", join(spec.choices));
    if (spec.type != FlagType::kWordOrInteger) return words + " is expected";
    const std::optional<std::int64_t> integer = parse_integer(text);
    const bool good = integer && static_cast<double>(*integer) >= spec.min;
    return good ? "" : concat(words, ", or a whole number of at least ", shortest(spec.min), " is expected");
  }
  switch (spec.type) {
    case FlagType::kSwitch:
    case FlagType::kOnOff:
      return text == "on" || text == "off" ? "" : "on or off is expected";
    case FlagType::kInteger: {
      const std::optional<std::int64_t> integer = parse_integer(text);
      if (!integer) return "a whole number is expected";
      return static_cast<double>(*integer) >= spec.min ? "" : concat("at least ", shortest(spec.min), " is expected");
    }
    case FlagType::kNumber:
    case FlagType::kNumbers: {
      const std::optional<double> number = parse_number(text);
      if (!number || !std::isfinite(*number)) return "a finite number is expected";
      return *number >= spec.min ? "" : concat("at least ", shortest(spec.min), " is expected");
    }
    case FlagType::kJson:
      try {
        formats::parse_json(text, "");
        return {};
      } catch (const formats::JsonError& error) {
        return concat("JSON is expected: ", error.detail());
      }
    case FlagType::kText:
    case FlagType::kTexts:
    case FlagType::kWordOrInteger:
      return text.empty() ? "is empty" : "";
  }
  return {};
}

bool same_values(const FlagSpec& spec, const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const bool numeric = spec.type == FlagType::kInteger || spec.type == FlagType::kNumber ||
                       spec.type == FlagType::kNumbers || spec.type == FlagType::kWordOrInteger;
  if (!numeric || a == b) return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const std::string& x, const std::string& y) {
    return x == y || (parse_number(x) && parse_number(x) == parse_number(y));
  });
}

// What the planner is to choose, where nothing else says it.
bool is_auto(const FlagSpec& spec, const Asked& value) {
  return value.values == std::vector<std::string>{"auto"} && spec.choices == value.values;
}

std::string text_of(const JsonValue& value) {
  if (value.kind == Kind::kBool) return value.boolean ? "on" : "off";
  return value.text;
}

}  // namespace

void ask(const FlagSpec& spec, Asked value, Draft& draft) {
  const std::string found = join(value.values, " ");
  const bool many = spec.type == FlagType::kTexts || spec.type == FlagType::kNumbers;
  if (value.values.empty() || (!many && value.values.size() != 1)) {
    draft.problem(value.path, value.place, found, many ? "at least one value is expected" : "one value is expected");
    return;
  }
  if (spec.key == "betas" && value.values.size() != 2) {
    draft.problem(value.path, value.place, found, "two numbers are expected", "0.9 0.999");
    return;
  }
  for (const std::string& text : value.values) {
    const std::string wrong = objection(spec, text);
    if (wrong.empty()) continue;
    draft.problem(value.path, value.place, text, wrong, nearest(text, spec.choices).value_or(""));
    return;
  }
  const Asked* before = draft.find_asked(spec.key);
  if (before != nullptr && is_auto(spec, value)) return;
  if (before != nullptr && is_auto(spec, *before)) before = nullptr;
  if (before != nullptr && !same_values(spec, before->values, value.values)) {
    if (before->from == From::kSet) return;
    if (value.from != From::kSet) {
      const formats::JsonPlace at = value.place.line > 0 ? value.place : before->place;
      draft.problem(value.path, at, found, concat(value.shown, " contradicts ", before->shown),
                    "keep one, or use --set to override");
      return;
    }
  }
  draft.asked[spec.key] = std::move(value);
}

void read_intarsia_section(const JsonMember& section, Draft& draft) {
  if (section.value.kind != Kind::kObject) {
    draft.problem("intarsia", section.value.place, section.value.show(), "a section in braces is expected", "{ ... }");
    return;
  }
  for (const JsonMember& member : section.value.members) {
    const std::string path = "intarsia." + member.key;
    const FlagSpec* spec = find_flag_by_key(member.key);
    if (spec == nullptr) {
      std::vector<std::string> known;
      for (const FlagSpec& flag : run_flags()) known.push_back(flag.key);
      draft.problem(path, member.place, member.value.show(), "unknown key", nearest(member.key, known).value_or(""));
      continue;
    }
    const bool from_set = member.place.line == 0;
    Asked value{
        {}, from_set ? From::kSet : From::kFile, path, concat(path, " = ", member.value.show()), member.value.place};
    if (!from_set) value.shown += concat(" in line ", member.value.place.line);
    const bool numeric =
        spec->type == FlagType::kInteger || spec->type == FlagType::kNumber || spec->type == FlagType::kNumbers;
    const bool is_switch = spec->type == FlagType::kSwitch || spec->type == FlagType::kOnOff;
    const auto fits = [&](const JsonValue& item) {
      if (numeric) return item.kind == Kind::kNumber;
      if (spec->type == FlagType::kWordOrInteger && item.kind == Kind::kNumber) return true;
      return item.kind == Kind::kString || (is_switch && item.kind == Kind::kBool);
    };
    bool good = true;
    if (spec->type == FlagType::kJson) {
      value.values.push_back(member.value.show(std::string::npos - 4));
    } else if (member.value.kind == Kind::kArray) {
      for (const JsonValue& item : member.value.items) {
        good = good && fits(item);
        value.values.push_back(text_of(item));
      }
    } else {
      good = fits(member.value);
      value.values.push_back(text_of(member.value));
    }
    if (!good) {
      draft.problem(path, member.value.place, member.value.show(),
                    numeric     ? "a number is expected, without quotes"
                    : is_switch ? "true or false is expected"
                                : "text in quotes is expected");
      continue;
    }
    ask(*spec, std::move(value), draft);
  }
}

void read_flags(Draft& draft) {
  for (const FlagValue& flag : draft.input.flags) {
    INTARSIA_INVARIANT(flag.spec != nullptr, "a flag without its row of the table");
    Asked value{flag.values, From::kFlag, flag.written.empty() ? flag.spec->name : flag.written, "", {}};
    if (flag.spec->type == FlagType::kSwitch && value.values.empty()) value.values = {"on"};
    value.shown = concat(value.path, " ", join(value.values, " "));
    ask(*flag.spec, std::move(value), draft);
  }
}

}  // namespace intarsia::config
