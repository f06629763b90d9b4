#include "intarsia/config/readers/deepspeed_reader.h"

#include <algorithm>
#include <cmath>

#include "intarsia/base/text.h"
#include "intarsia/config/asked.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

using formats::JsonMember;
using formats::JsonValue;
using Kind = JsonValue::Kind;

std::string words(const std::vector<std::string>& choices) {
  std::string out;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += i + 1 == choices.size() ? " or " : ", ";
    out += choices[i];
  }
  return out;
}

std::string last_word(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return std::string(dot == std::string_view::npos ? path : path.substr(dot + 1));
}

class Reader {
 public:
  explicit Reader(Draft& draft) : draft_(draft) {}

  void read(const JsonValue& root) {
    // Parameters of optimizer and scheduler are known by type, so the types are looked up first.
    optimizer_ = type_of(root, "optimizer");
    scheduler_ = type_of(root, "scheduler");
    walk(root, "");
  }

 private:
  const TypeSpec* type_of(const JsonValue& root, const char* section) const {
    const JsonMember* outer = root.find(section);
    const JsonMember* type = outer != nullptr ? outer->value.find("type") : nullptr;
    if (type == nullptr || type->value.kind != Kind::kString) return nullptr;
    return section[0] == 'o' ? find_optimizer(type->value.text) : find_scheduler(type->value.text);
  }

  void walk(const JsonValue& object, const std::string& prefix) {
    for (const JsonMember& member : object.members) {
      const std::string written = prefix + member.key;
      if (written == "intarsia") {
        read_intarsia_section(member, draft_);
        continue;
      }
      const std::string path = canonical(written, member);
      if (!path.empty()) visit(path, written, member);
    }
  }

  // The path without aliases, or nothing when both spellings are given.
  std::string canonical(const std::string& written, const JsonMember& member) {
    for (const KeyAlias& alias : deepspeed_aliases()) {
      if (alias.from != written) continue;
      if (!alias.note.empty()) draft_.report(Report::Level::kNote, written, member.place, alias.note);
      const Cell* other = draft_.find(alias.to);
      if (other == nullptr) return alias.to;
      if (other->value.show() != member.value.show()) {
        draft_.problem(
            written, member.value.place, member.value.show(),
            concat("means ", alias.to, ", which is ", other->value.show(), " in line ", other->value.place.line),
            concat("keep ", alias.to));
      }
      return {};
    }
    return written;
  }

  void visit(const std::string& path, const std::string& written, const JsonMember& member) {
    const Cell* twice = draft_.find(path);
    if (twice != nullptr) {
      if (twice->value.show() != member.value.show()) {
        draft_.problem(path, member.value.place, member.value.show(),
                       concat("another spelling of it is ", twice->value.show(), " in line ", twice->value.place.line),
                       "keep one");
      }
      return;
    }
    if (path.starts_with("optimizer.params."))
      return param(path, member, optimizer_, "optimizer", deepspeed_optimizers());
    if (path.starts_with("scheduler.params."))
      return param(path, member, scheduler_, "scheduler", deepspeed_schedulers());
    if (const KeySpec* spec = find_deepspeed_key(path)) return key(*spec, path, written, member);
    if (!is_deepspeed_section(path)) return unknown(path, member);
    if (member.value.kind == Kind::kNull) return;
    // The deprecated {"zero_optimization": true} and the like have no keys to read.
    if (member.value.kind != Kind::kObject) {
      draft_.problem(path, member.value.place, member.value.show(), "a section in braces is expected", "{ ... }");
      return;
    }
    draft_.sections.emplace(path, member.place);
    walk(member.value, path + ".");
  }

  void param(const std::string& path, const JsonMember& member, const TypeSpec* type, const char* section,
             const std::vector<TypeSpec>& types) {
    if (type == nullptr) {
      // An unknown type is reported once, with the type; its parameters cannot be judged.
      if (!draft_.is_bad(concat(section, ".type")) && draft_.find(concat(section, ".type")) == nullptr) {
        draft_.bad.insert(concat(section, ".type"));
      }
      return;
    }
    const std::string name = last_word(path);
    for (const KeySpec& spec : type->params) {
      if (spec.path != name) continue;
      KeySpec full = spec;
      full.path = path;
      return key(full, path, path, member);
    }
    const std::string what = concat("not a parameter of ", type->name);
    if (const KeyHint* hint = find_key_hint(path)) {
      draft_.problem(path, member.place, member.value.show(), concat(what, ": ", hint->message), hint->suggestion);
      return;
    }
    std::vector<std::string> known;
    for (const KeySpec& spec : type->params) known.push_back(spec.path);
    const std::optional<std::string> close = nearest(name, known);
    std::string where;
    for (const TypeSpec& other : types) {
      const auto has = [&](const KeySpec& spec) { return spec.path == name; };
      if (std::any_of(other.params.begin(), other.params.end(), has)) where += (where.empty() ? "" : ", ") + other.name;
    }
    draft_.problem(path, member.place, member.value.show(),
                   concat(what, ", which has ", join(known), where.empty() ? "" : concat("; it belongs to ", where)),
                   close.value_or(""));
  }

  void unknown(const std::string& path, const JsonMember& member) {
    const std::size_t dot = path.rfind('.');
    const std::string prefix = dot == std::string::npos ? "" : path.substr(0, dot + 1);
    std::vector<std::string> known;
    for (const KeySpec& spec : deepspeed_keys()) {
      if (!spec.path.starts_with(prefix)) continue;
      const std::string rest = spec.path.substr(prefix.size());
      const std::string word = rest.substr(0, rest.find('.'));
      if (std::find(known.begin(), known.end(), word) == known.end()) known.push_back(word);
    }
    if (prefix.empty()) known.insert(known.end(), {"intarsia", "zero3_save_16bit_model"});
    std::string message = "unknown key";
    std::string suggestion = nearest(member.key, known).value_or("");
    if (const KeyHint* hint = find_key_hint(path)) {
      message += concat(": ", hint->message);
      suggestion = hint->suggestion;
    } else if (suggestion.empty()) {
      const std::optional<std::string> fsdp = nearest(member.key, fsdp_config_keys());
      if (fsdp && prefix.empty()) {
        message += "; the nearest one belongs to Hugging Face's fsdp_config, and this is read as a DeepSpeed JSON";
        suggestion = *fsdp;
      } else {
        message +=
            prefix.empty() ? "; docs/config.md lists all" : concat("; ", path.substr(0, dot), " has ", join(known));
      }
    }
    draft_.problem(path, member.place, member.value.show(), message, suggestion);
  }

  void key(const KeySpec& spec, const std::string& path, const std::string& written, const JsonMember& member) {
    draft_.sections.emplace(path, member.place);
    if (spec.effect == KeyEffect::kRemoved) {
      draft_.problem(path, member.place, member.value.show(40), spec.reason);
      return;
    }
    if (spec.effect == KeyEffect::kLater) return later(spec, path, member);
    // A null is an absent key, as in DeepSpeed.
    if (member.value.kind == Kind::kNull) return;
    if (path.find(".nvme_path") == std::string::npos && member.value.kind == Kind::kString &&
        member.value.text == "auto") {
      draft_.cells[path] = {member.value, From::kFile, member.place};
      return;
    }
    if (!check(spec, path, member)) return;
    draft_.cells[path] = {member.value, From::kFile, member.place};
    if (spec.effect == KeyEffect::kNoEffect) no_effect(spec, written, member);
    if (spec.effect == KeyEffect::kRefused) refused(spec, path, member);
  }

  void later(const KeySpec& spec, const std::string& path, const JsonMember& member) {
    const JsonMember* enabled = member.value.find("enabled");
    const bool off = member.value.kind == Kind::kNull ||
                     (enabled != nullptr && enabled->value.kind == Kind::kBool && !enabled->value.boolean) ||
                     (member.value.kind == Kind::kObject && member.value.members.empty());
    if (off) {
      draft_.report(Report::Level::kNote, path, member.place,
                    "known DeepSpeed key, not supported here; it is off in this file");
      return;
    }
    draft_.refuse(path, concat("known DeepSpeed key, not supported here: ", spec.reason), "remove the section");
  }

  void no_effect(const KeySpec& spec, const std::string& written, const JsonMember& member) {
    if (member.value.kind == Kind::kBool && !member.value.boolean) return;
    draft_.report(Report::Level::kNote, written, member.place, concat("no effect here: ", spec.reason));
  }

  void refused(const KeySpec& spec, const std::string& path, const JsonMember& member) {
    if (!spec.fallback.empty()) {
      const JsonValue fallback = formats::parse_json(spec.fallback, "default");
      const bool same = fallback.kind == Kind::kNumber ? fallback.as_number() == member.value.as_number()
                                                       : fallback.show() == member.value.show();
      if (same) return;
    }
    // autotp_size 0 and 1 both mean no tensor parallelism.
    if (path == "tensor_parallel.autotp_size" && member.value.as_integer() == 1) return;
    draft_.refuse(path, spec.reason, spec.fallback.empty() ? "remove the key" : concat("set it to ", spec.fallback));
  }

  bool check(const KeySpec& spec, const std::string& path, const JsonMember& member) {
    const JsonValue& value = member.value;
    const auto wrong = [&](std::string message, std::string suggestion = {}) {
      draft_.problem(path, value.place, value.show(), std::move(message), std::move(suggestion));
      return false;
    };
    switch (spec.type) {
      case KeyType::kAnything:
        return true;
      case KeyType::kBool:
        return value.kind == Kind::kBool || wrong("true or false is expected", "true or false");
      case KeyType::kText:
        return value.kind == Kind::kString || wrong("text in quotes is expected");
      case KeyType::kChoice: {
        const bool known = value.kind == Kind::kString &&
                           std::find(spec.choices.begin(), spec.choices.end(), value.text) != spec.choices.end();
        return known || wrong(concat(words(spec.choices), " is expected"), words(spec.choices));
      }
      case KeyType::kStage:
        if (value.kind == Kind::kBool) {
          draft_.report(Report::Level::kWarning, path, member.place,
                        concat("a boolean is the old form; it means stage ", value.boolean ? 1 : 0));
          return true;
        }
        if (value.kind != Kind::kNumber || !value.as_integer() || *value.as_integer() < 0 || *value.as_integer() > 3) {
          return wrong("the stage is 0, 1, 2 or 3", "0, 1, 2 or 3");
        }
        return true;
      case KeyType::kNumbers: {
        const bool two = value.kind == Kind::kArray && value.items.size() == 2 && value.items[0].as_number() &&
                         value.items[1].as_number();
        if (!two) return wrong("a list of two numbers is expected", "[0.9, 0.999]");
        for (const JsonValue& item : value.items) {
          const double beta = *item.as_number();
          if (!(beta >= 0 && beta < 1)) return wrong("each is at least 0 and below 1", "[0.9, 0.999]");
        }
        return true;
      }
      case KeyType::kInteger:
      case KeyType::kNumber:
        return check_number(spec, value, wrong);
    }
    return true;
  }

  template <typename Wrong>
  bool check_number(const KeySpec& spec, const JsonValue& value, const Wrong& wrong) const {
    const bool integer = spec.type == KeyType::kInteger;
    const char* const kind = integer ? "a whole number" : "a number";
    if (value.kind == Kind::kString) {
      const std::optional<double> inside = parse_number(value.text);
      return wrong(concat(kind, " is expected, without quotes"), inside ? value.text : "");
    }
    if (value.kind != Kind::kNumber) return wrong(concat(kind, " is expected"));
    const double number = *value.as_number();
    if (!std::isfinite(number)) {
      const bool word = value.text.find('I') != std::string::npos || value.text == "NaN";
      return wrong(word ? "a finite number is expected" : "too large for a 64-bit floating-point number");
    }
    if (integer && number != std::floor(number)) return wrong("a whole number is expected (5e8 and 4.0 are whole)");
    if (integer && !value.as_integer()) return wrong("too large for a 64-bit whole number");
    if (number < spec.min || (spec.above_min && number <= spec.min)) {
      return wrong(concat(kind, spec.above_min ? " above " : " of at least ", shortest(spec.min), " is expected"));
    }
    if (number > spec.max) return wrong(concat(kind, " of at most ", shortest(spec.max), " is expected"));
    return true;
  }

  Draft& draft_;
  const TypeSpec* optimizer_ = nullptr;
  const TypeSpec* scheduler_ = nullptr;
};

}  // namespace

void read_deepspeed(const formats::JsonValue& root, Draft& draft) {
  if (root.kind != Kind::kObject) {
    draft.problem("", root.place, root.show(40), "a DeepSpeed configuration is an object in braces", "{ ... }");
    return;
  }
  Reader(draft).read(root);
}

}  // namespace intarsia::config
