// Methods of texts and dicts.
#include <map>

#include "intarsia/base/text.h"
#include "intarsia/formats/chat_template/builtins.h"
#include "intarsia/formats/chat_template/text_functions.h"

namespace intarsia::formats::chat {
namespace {

using TextMethod = Value (*)(const std::string& text, const Arguments&, Budget&);

template <Side Where>
Value strip_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound bound("strip", arguments, {"chars"});
  const bool given = bound.get(0) != nullptr && !bound.get(0)->is_none();
  return budget.text(strip(text, given ? std::optional(bound.text(0)) : std::nullopt, Where));
}

Value texts(std::vector<std::string> parts, Budget& budget) {
  List out;
  for (std::string& part : parts) out.push_back(budget.text(std::move(part)));
  return Value(std::move(out));
}

template <bool FromRight>
Value split_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const bool given = bound.get(0) != nullptr && !bound.get(0)->is_none();
  budget.made(text.size());
  return texts(split(text, given ? std::optional(bound.text(0)) : std::nullopt, bound.integer(1, -1), FromRight),
               budget);
}

// startswith and endswith take one text or several.
template <bool AtEnd>
Value border_method(const std::string& text, const Arguments& arguments, Budget&) {
  const Bound bound(AtEnd ? "endswith" : "startswith", arguments, {AtEnd ? "suffix" : "prefix"});
  const auto holds = [&](const Value& part) {
    INTARSIA_CHECK(kData, part.text() != nullptr, "startswith or endswith of a value of type ", part.type_name());
    return Value(AtEnd ? text.ends_with(*part.text()) : text.starts_with(*part.text()));
  };
  const List* several = bound.need(0).list();
  if (several == nullptr) return holds(bound.need(0));
  for (const Value& part : *several)
    if (holds(part).truth()) return Value(true);
  return Value(false);
}

template <std::string (*Function)(std::string_view)>
Value plain_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound none("a method", arguments, {});
  return budget.text(Function(text));
}

Value replace_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  return budget.text(replace_text(text, bound.text(0), bound.text(1), bound.integer(2, -1)));
}

Value join_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound bound("join", arguments, {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : items_of(bound.need(0), budget)) {
    INTARSIA_CHECK(kData, item.text() != nullptr, "join of a value of type ", item.type_name());
    if (!std::exchange(first, false)) out += text;
    out += *item.text();
  }
  return budget.text(std::move(out));
}

// Counted in characters, as Python does.
Value find_method(const std::string& text, const Arguments& arguments, Budget&) {
  const Bound bound("find", arguments, {"sub"});
  const std::size_t at = text.find(bound.text(0));
  return Value(at == text.npos ? std::int64_t{-1} : *length_of(Value(text.substr(0, at))));
}

Value count_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound bound("count", arguments, {"sub"});
  budget.made(text.size());
  return Value(static_cast<std::int64_t>(split(text, bound.text(0), -1, false).size()) - 1);
}

Value lines_method(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound none("splitlines", arguments, {});
  budget.made(text.size());
  return texts(split_lines(text), budget);
}

Value digit_method(const std::string& text, const Arguments& arguments, Budget&) {
  const Bound none("isdigit", arguments, {});
  return Value(!text.empty() && text.find_first_not_of("0123456789") == text.npos);
}

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> kMethods = {
      {"strip", strip_method<Side::kBoth>},
      {"lstrip", strip_method<Side::kLeft>},
      {"rstrip", strip_method<Side::kRight>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"startswith", border_method<false>},
      {"endswith", border_method<true>},
      {"upper", plain_method<upper>},
      {"lower", plain_method<lower>},
      {"title", plain_method<title>},
      {"capitalize", plain_method<capitalize>},
      {"replace", replace_method},
      {"join", join_method},
      {"find", find_method},
      {"count", count_method},
      {"splitlines", lines_method},
      {"isdigit", digit_method},
  };
  return kMethods;
}

Value dict_method(const Value& value, const std::string& name, const Arguments& arguments) {
  const Dict& dict = *value.dict();
  if (name == "get") {
    const Bound bound("get", arguments, {"key", "default"});
    const Value* found = bound.need(0).text() == nullptr ? nullptr : find(dict, bound.text(0));
    if (found != nullptr) return *found;
    return bound.get(1) == nullptr ? Value(None{}) : *bound.get(1);
  }
  const Bound none(name, arguments, {});
  List out;
  for (const auto& [key, item] : dict) {
    if (name == "items") {
      out.emplace_back(List{Value(key), item});
    } else {
      out.push_back(name == "keys" ? Value(key) : item);
    }
  }
  return Value(std::move(out));
}

}  // namespace

bool is_method(std::string_view name) {
  return text_methods().contains(name) || name == "get" || name == "items" || name == "keys" || name == "values";
}

std::optional<Value> method_of(const Value& value, const std::string& name, Budget& budget) {
  if (value.text() != nullptr) {
    const auto found = text_methods().find(name);
    if (found == text_methods().end()) return std::nullopt;
    return Value(std::make_shared<const Callable>(
        Callable{name, [value, call = found->second, &budget](const Arguments& arguments) {
                   return call(*value.text(), arguments, budget);
                 }}));
  }
  if (value.dict() == nullptr || (name != "get" && name != "items" && name != "keys" && name != "values"))
    return std::nullopt;
  return Value(std::make_shared<const Callable>(
      Callable{name, [value, name](const Arguments& arguments) { return dict_method(value, name, arguments); }}));
}

}  // namespace intarsia::formats::chat
