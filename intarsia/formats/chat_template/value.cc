#include "intarsia/formats/chat_template/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats::chat {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

// repr() of a str: single quotes unless the text has some and no double ones.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string json_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    if (const std::size_t at = kNamed.find(c); at != kNamed.npos && c != '\0') {
      out += '\\';
      out += kLetters[at];
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(std::optional<std::int64_t> indent) : indent_(indent) {}

  void write(const Value& value, std::int64_t depth) {
    if (const std::string* text = value.text()) {
      out += json_quoted(*text);
    } else if (const List* list = value.list()) {
      write_items('[', ']', list->size(), depth, [&](std::size_t i) { write((*list)[i], depth + 1); });
    } else if (const Dict* dict = value.dict()) {
      write_items('{', '}', dict->size(), depth, [&](std::size_t i) {
        out += json_quoted((*dict)[i].first) + ": ";
        write((*dict)[i].second, depth + 1);
      });
    } else if (value.is_none()) {
      out += "null";
    } else if (const bool* b = value.get_if<bool>()) {
      out += *b ? "true" : "false";
    } else if (value.number()) {
      const double* d = value.get_if<double>();
      out += d != nullptr && std::isnan(*d)   ? "NaN"
             : d != nullptr && std::isinf(*d) ? (*d > 0 ? "Infinity" : "-Infinity")
                                              : value.str();
    } else {
      fail(ErrorKind::kData, "tojson of a value of type ", value.type_name());
    }
  }

  std::string out;

 private:
  template <typename Each>
  void write_items(char open, char close, std::size_t count, std::int64_t depth, const Each& each) {
    out += open;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += indent_ ? "," : ", ";
      new_line(depth + 1);
      each(i);
    }
    if (count > 0) new_line(depth);
    out += close;
  }
  void new_line(std::int64_t depth) {
    if (indent_) out += "\n" + std::string(static_cast<std::size_t>(*indent_ * depth), ' ');
  }

  std::optional<std::int64_t> indent_;
};

}  // namespace

void Value::check_item(const Value& item) {
  INTARSIA_CHECK(kData, item.space() == nullptr && item.loop() == nullptr && item.callable() == nullptr, "a ",
                 item.type_name(), " inside a list or a dict is not supported");
  nesting_ = std::max(nesting_, item.nesting_ + 1);
  INTARSIA_CHECK(kData, nesting_ <= kMaxNesting, "lists and dicts nested more than ", kMaxNesting, " deep");
}

Value::Value(List items) {
  for (const Value& item : items) check_item(item);
  data_ = std::make_shared<const List>(std::move(items));
}

Value::Value(Dict items) {
  for (const auto& [key, item] : items) check_item(item);
  data_ = std::make_shared<const Dict>(std::move(items));
}

Value Value::of(const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<std::int64_t>());
    case Type::number_unsigned:
      INTARSIA_CHECK(kData, json.get<std::uint64_t>() <= INT64_MAX, "the integer ", json.get<std::uint64_t>(),
                     " is beyond 64 bits with a sign");
      return Value(json.get<std::int64_t>());
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value(json.get_ref<const std::string&>());
    case Type::array: {
      List items;
      for (const auto& item : json) items.push_back(of(item));
      return Value(std::move(items));
    }
    case Type::object: {
      Dict items;
      for (const auto& [key, item] : json.items()) items.emplace_back(key, of(item));
      return Value(std::move(items));
    }
    default:
      return Value(None{});
  }
}

Namespace* Value::space() const {
  const auto* shared = get_if<std::shared_ptr<Namespace>>();
  return shared == nullptr ? nullptr : shared->get();
}

std::optional<std::int64_t> Value::integer() const {
  if (const bool* b = get_if<bool>()) return *b ? 1 : 0;
  if (const auto* i = get_if<std::int64_t>()) return *i;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* d = get_if<double>()) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const auto n = number()) return *n != 0;
  if (const std::string* t = text()) return !t->empty();
  if (const List* l = list()) return !l->empty();
  if (const Dict* d = dict()) return !d->empty();
  return true;
}

std::string Value::str() const {
  if (const std::string* t = text()) return *t;
  if (is_undefined()) return {};
  return repr();
}

std::string Value::repr() const {
  if (const std::string* t = text()) return quoted(*t);
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* b = get_if<bool>()) return *b ? "True" : "False";
  if (const auto* i = get_if<std::int64_t>()) return std::to_string(*i);
  if (const double* d = get_if<double>()) return python_float(*d);
  std::string out;
  if (const List* items = list()) {
    for (const Value& item : *items) out += (out.empty() ? "" : ", ") + item.repr();
    return "[" + out + "]";
  }
  if (const Dict* items = dict()) {
    for (const auto& [key, item] : *items) out += (out.empty() ? "" : ", ") + quoted(key) + ": " + item.repr();
    return "{" + out + "}";
  }
  fail(ErrorKind::kData, "a ", type_name(), " cannot be printed");
}

const char* Value::type_name() const {
  constexpr std::array kNames = {"undefined", "None", "bool",      "int",  "float",   "str",
                                 "list",      "dict", "namespace", "loop", "function"};
  return kNames[data_.index()];
}

bool Value::operator==(const Value& other) const {
  const auto mine = number(), its = other.number();
  if (mine || its) return mine && its && *mine == *its;
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (const std::string* t = text()) return *t == *other.text();
  if (const List* l = list()) return *l == *other.list();
  if (const Dict* d = dict()) {
    const Dict& o = *other.dict();
    return d->size() == o.size() && std::all_of(d->begin(), d->end(), [&](const auto& entry) {
             const Value* value = find(o, entry.first);
             return value != nullptr && *value == entry.second;
           });
  }
  return false;
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict)
    if (name == key) return &value;
  return nullptr;
}

std::string to_json(const Value& value, std::optional<std::int64_t> indent) {
  JsonWriter writer(indent);
  writer.write(value, 0);
  return std::move(writer.out);
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  // Python changes to the form with an exponent below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed).ptr;
  std::string out(buffer.data(), fixed);
  return out.find('.') == out.npos ? out + ".0" : out;
}

}  // namespace intarsia::formats::chat
