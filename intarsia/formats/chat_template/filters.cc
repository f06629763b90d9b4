// Filters and tests.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>

#include "intarsia/base/text.h"
#include "intarsia/formats/chat_template/builtins.h"
#include "intarsia/formats/chat_template/text_functions.h"

namespace intarsia::formats::chat {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Budget&);
using Test = bool (*)(const Value&, const Arguments&);

// item.a.b, as the argument `attribute` of several filters names it.
Value attribute_of(const Value& value, const std::string& path) {
  Value out = value;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const Dict* dict = out.dict();
    const Value* found = dict == nullptr ? nullptr : find(*dict, path.substr(at, dot - at));
    out = found == nullptr ? Value(Undefined{path}) : Value(*found);
    at = dot + 1;
  }
  return out;
}

// The text that a filter of texts works on: like Jinja, any value is printed first.
std::string text_of(const Value& value) { return value.str(); }

template <std::string (*Function)(std::string_view)>
Value text_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none("the filter", arguments, {});
  return budget.text(Function(text_of(value)));
}

Value trim(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound("trim", arguments, {"chars"});
  const Value* characters = bound.get(0);
  return budget.text(strip(text_of(value), characters == nullptr || characters->is_none()
                                               ? std::nullopt
                                               : std::optional<std::string>(bound.text(0))));
}

Value length(const Value& value, const Arguments& arguments, Budget&) {
  const Bound none("length", arguments, {});
  const auto size = length_of(value);
  INTARSIA_CHECK(kData, size, "length of a value of type ", value.type_name());
  return Value(*size);
}

Value default_filter(const Value& value, const Arguments& arguments, Budget&) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool falsy = bound.get(1) != nullptr && bound.get(1)->truth();
  if (!value.is_undefined() && !(falsy && !value.truth())) return value;
  return bound.get(0) == nullptr ? Value("") : *bound.get(0);
}

Value tojson(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  for (const std::size_t i : {0, 2, 3}) {
    INTARSIA_CHECK(kUnsupported, bound.get(i) == nullptr || !bound.get(i)->truth(),
                   "tojson with arguments other than indent is not supported");
  }
  // A call with one argument and no name, tojson(4), means indent in templates written for Jinja's own filter.
  const std::int64_t indent = bound.integer(1, -1);
  INTARSIA_CHECK(kData, indent <= 64, "tojson with an indent of ", indent);
  return budget.text(to_json(value, indent < 0 ? std::nullopt : std::optional(indent)));
}

Value join_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.get(0) == nullptr ? "" : bound.get(0)->str();
  std::string out;
  bool first = true;
  for (const Value& item : items_of(value, budget)) {
    if (!std::exchange(first, false)) out += separator;
    out += (bound.get(1) == nullptr ? item : attribute_of(item, bound.text(1))).str();
  }
  return budget.text(std::move(out));
}

Value list_filter(const Value& value, const Arguments&, Budget& budget) { return Value(items_of(value, budget)); }

Value first(const Value& value, const Arguments&, Budget& budget) {
  if (value.dict() == nullptr) return item_at(value, 0);
  const List items = items_of(value, budget);
  return items.empty() ? Value() : items.front();
}

Value last(const Value& value, const Arguments&, Budget& budget) {
  if (value.dict() == nullptr) return item_at(value, -1);
  const List items = items_of(value, budget);
  return items.empty() ? Value() : items.back();
}

Value reverse(const Value& value, const Arguments&, Budget& budget) {
  List items = items_of(value, budget);
  std::reverse(items.begin(), items.end());
  if (value.text() == nullptr) return Value(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.str();
  return budget.text(std::move(out));
}

Value replace(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  return budget.text(replace_text(text_of(value), bound.need(0).str(), bound.need(1).str(), bound.integer(2, -1)));
}

Value pairs_of(const Dict& dict) {
  List out;
  for (const auto& [key, item] : dict) out.emplace_back(List{Value(key), item});
  return Value(std::move(out));
}

Value items_filter(const Value& value, const Arguments&, Budget&) {
  if (value.is_undefined()) return Value(List{});
  INTARSIA_CHECK(kData, value.dict() != nullptr, "items of a value of type ", value.type_name());
  return pairs_of(*value.dict());
}

Value dictsort(const Value& value, const Arguments& arguments, Budget&) {
  const Bound none("dictsort", arguments, {});
  INTARSIA_CHECK(kData, value.dict() != nullptr, "dictsort of a value of type ", value.type_name());
  Dict sorted = *value.dict();
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return lower(a.first) < lower(b.first); });
  return pairs_of(sorted);
}

Value string_filter(const Value& value, const Arguments&, Budget& budget) { return budget.text(value.str()); }
Value same(const Value& value, const Arguments&, Budget&) { return value; }

Value int_filter(const Value& value, const Arguments& arguments, Budget&) {
  const Bound bound("int", arguments, {"default"});
  if (const auto integer = value.integer()) return Value(*integer);
  if (const auto number = value.number(); number && std::fabs(*number) < 0x1p62)
    return Value(static_cast<std::int64_t>(*number));
  if (const std::string* text = value.text()) {
    std::int64_t out = 0;
    const std::string digits = strip(*text, std::nullopt);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (error == std::errc() && end == digits.data() + digits.size()) return Value(out);
  }
  return Value(bound.integer(0, 0));
}

Value float_filter(const Value& value, const Arguments&, Budget&) {
  if (const auto number = value.number()) return Value(*number);
  double out = 0;
  if (const std::string* text = value.text()) std::from_chars(text->data(), text->data() + text->size(), out);
  return Value(out);
}

Value abs_filter(const Value& value, const Arguments&, Budget&) {
  if (const auto integer = value.integer(); integer && *integer != INT64_MIN) return Value(std::abs(*integer));
  INTARSIA_CHECK(kData, value.number(), "abs of a value of type ", value.type_name());
  return Value(std::fabs(*value.number()));
}

Value unique(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none("unique", arguments, {});
  List out;
  for (const Value& item : items_of(value, budget)) {
    const bool seen = std::any_of(out.begin(), out.end(), [&](const Value& other) {
      budget.step();
      return other == item;
    });
    if (!seen) out.push_back(item);
  }
  return Value(std::move(out));
}

Value sort(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool descending = bound.get(0) != nullptr && bound.get(0)->truth();
  const bool exact = bound.get(1) != nullptr && bound.get(1)->truth();
  const auto key = [&](const Value& item) {
    const Value out = bound.get(2) == nullptr ? item : attribute_of(item, bound.text(2));
    return out.text() != nullptr && !exact ? Value(lower(*out.text())) : out;
  };
  List items = items_of(value, budget);
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    budget.step();
    const int order = compare(key(a), key(b));
    return descending ? order > 0 : order < 0;
  });
  return Value(std::move(items));
}

Arguments after(const Arguments& arguments, std::size_t count) {
  Arguments out;
  for (std::size_t i = count; i < arguments.positional.size(); ++i) out.positional.push_back(arguments.positional[i]);
  return out;
}

std::string first_text(const Arguments& arguments, std::size_t i, const char* what) {
  INTARSIA_CHECK(kData, arguments.positional.size() > i && arguments.positional[i].text() != nullptr, what,
                 ": a name is expected");
  return *arguments.positional[i].text();
}

Value map(const Value& value, const Arguments& arguments, Budget& budget) {
  List out;
  const Value* attribute = find(arguments.named, "attribute");
  for (const Value& item : items_of(value, budget)) {
    budget.step();
    if (attribute != nullptr) {
      out.push_back(attribute_of(item, attribute->str()));
    } else {
      const std::string name = first_text(arguments, 0, "map");
      INTARSIA_CHECK(kUnsupported, is_filter(name), "the filter ", printable(name), " is not supported");
      out.push_back(apply_filter(name, item, after(arguments, 1), budget));
    }
  }
  return Value(std::move(out));
}

Value select_items(const Value& value, const Arguments& arguments, Budget& budget, bool by_attribute, bool wanted) {
  List out;
  const std::size_t at = by_attribute ? 1 : 0;
  for (const Value& item : items_of(value, budget)) {
    budget.step();
    const Value looked = by_attribute ? attribute_of(item, first_text(arguments, 0, "selectattr")) : item;
    bool holds = looked.truth();
    if (arguments.positional.size() > at) {
      const std::string name = first_text(arguments, at, "select");
      INTARSIA_CHECK(kUnsupported, is_test(name), "the test ", printable(name), " is not supported");
      holds = apply_test(name, looked, after(arguments, at + 1));
    }
    if (holds == wanted) out.push_back(item);
  }
  return Value(std::move(out));
}

template <bool ByAttribute, bool Wanted>
Value select_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  return select_items(value, arguments, budget, ByAttribute, Wanted);
}

Value indent(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  const std::int64_t width = bound.integer(0, 4);
  INTARSIA_CHECK(kData, width >= 0 && width <= 256, "indent by ", width);
  const bool first_too = bound.get(1) != nullptr && bound.get(1)->truth();
  const bool blank_too = bound.get(2) != nullptr && bound.get(2)->truth();
  const std::string space(static_cast<std::size_t>(width), ' ');
  std::string out;
  bool is_first = true;
  for (const std::string& line : split_lines(text_of(value) + "\n")) {
    if (!is_first) out += '\n';
    if ((is_first && first_too) || (!is_first && (blank_too || !line.empty()))) out += space;
    out += line;
    is_first = false;
  }
  return budget.text(std::move(out));
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters = {
      {"abs", abs_filter},
      {"capitalize", text_filter<capitalize>},
      {"count", length},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort},
      {"first", first},
      {"float", float_filter},
      {"indent", indent},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last},
      {"length", length},
      {"list", list_filter},
      {"lower", text_filter<lower>},
      {"map", map},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<true, false>},
      {"replace", replace},
      {"reverse", reverse},
      {"safe", same},
      {"select", select_filter<false, true>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort},
      {"string", string_filter},
      {"title", text_filter<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"unique", unique},
      {"upper", text_filter<upper>},
  };
  return kFilters;
}

const Value& other(const Arguments& arguments) {
  INTARSIA_CHECK(kData, arguments.positional.size() == 1, "a test needs one argument, found ",
                 arguments.positional.size());
  return arguments.positional.front();
}

std::int64_t whole(const Value& value) {
  INTARSIA_CHECK(kData, value.integer(), "a test of integers on a value of type ", value.type_name());
  return *value.integer();
}

const std::map<std::string_view, Test>& tests() {
  using A = Arguments;
  using V = Value;
  static const Test kEqual = [](const V& v, const A& a) { return v == other(a); };
  static const Test kDifferent = [](const V& v, const A& a) { return !(v == other(a)); };
  static const Test kLess = [](const V& v, const A& a) { return compare(v, other(a)) < 0; };
  static const Test kGreater = [](const V& v, const A& a) { return compare(v, other(a)) > 0; };
  static const Test kIterable = [](const V& v, const A&) { return length_of(v).has_value(); };
  static const std::map<std::string_view, Test> kTests = {
      {"boolean", [](const V& v, const A&) { return v.get_if<bool>() != nullptr; }},
      {"callable", [](const V& v, const A&) { return v.callable() != nullptr; }},
      {"defined", [](const V& v, const A&) { return !v.is_undefined(); }},
      {"divisibleby", [](const V& v, const A& a) { return whole(other(a)) != 0 && whole(v) % whole(other(a)) == 0; }},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"even", [](const V& v, const A&) { return whole(v) % 2 == 0; }},
      {"false", [](const V& v, const A&) { return v.get_if<bool>() != nullptr && !v.truth(); }},
      {"float", [](const V& v, const A&) { return v.get_if<double>() != nullptr; }},
      {"ge", [](const V& v, const A& a) { return compare(v, other(a)) >= 0; }},
      {"greaterthan", kGreater},
      {"gt", kGreater},
      {"in", [](const V& v, const A& a) { return contains(other(a), v); }},
      {"integer", [](const V& v, const A&) { return v.get_if<std::int64_t>() != nullptr; }},
      {"iterable", kIterable},
      {"le", [](const V& v, const A& a) { return compare(v, other(a)) <= 0; }},
      {"lessthan", kLess},
      {"lt", kLess},
      {"mapping", [](const V& v, const A&) { return v.dict() != nullptr; }},
      {"ne", kDifferent},
      {"none", [](const V& v, const A&) { return v.is_none(); }},
      {"number", [](const V& v, const A&) { return v.number().has_value(); }},
      {"odd", [](const V& v, const A&) { return whole(v) % 2 != 0; }},
      {"sequence", kIterable},
      {"string", [](const V& v, const A&) { return v.text() != nullptr; }},
      {"true", [](const V& v, const A&) { return v.get_if<bool>() != nullptr && v.truth(); }},
      {"undefined", [](const V& v, const A&) { return v.is_undefined(); }},
  };
  return kTests;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().contains(name); }
bool is_test(std::string_view name) { return tests().contains(name); }

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget) {
  return filters().at(name)(value, arguments, budget);
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  return tests().at(name)(value, arguments);
}

}  // namespace intarsia::formats::chat
