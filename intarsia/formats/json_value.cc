// What a parsed value can tell of itself, and how it is shown.
#include <charconv>
#include <cmath>
#include <limits>

#include "intarsia/formats/json.h"

namespace intarsia::formats {
namespace {

void show_into(const JsonValue& value, std::size_t limit, std::string& out) {
  if (out.size() > limit) return;
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      out += "null";
      break;
    case JsonValue::Kind::kBool:
      out += value.boolean ? "true" : "false";
      break;
    case JsonValue::Kind::kNumber:
      out += value.text;
      break;
    case JsonValue::Kind::kString:
      out += json_quote(value.text);
      break;
    case JsonValue::Kind::kArray:
      out += '[';
      for (std::size_t i = 0; i < value.items.size() && out.size() <= limit; ++i) {
        if (i > 0) out += ", ";
        show_into(value.items[i], limit, out);
      }
      out += ']';
      break;
    case JsonValue::Kind::kObject:
      out += '{';
      for (std::size_t i = 0; i < value.members.size() && out.size() <= limit; ++i) {
        if (i > 0) out += ", ";
        out += json_quote(value.members[i].key) + ": ";
        show_into(value.members[i].value, limit, out);
      }
      out += '}';
      break;
  }
}

}  // namespace

const JsonMember* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

std::optional<double> JsonValue::as_number() const {
  if (kind != Kind::kNumber) return std::nullopt;
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  double number = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc::result_out_of_range) return number;
  // Too large or too small: from_chars does not say which, the sign of the exponent does.
  const std::size_t exponent = text.find_first_of("eE");
  const bool tiny = exponent == std::string::npos ? text.find_first_of("123456789") > text.find('.')
                                                  : text.compare(exponent + 1, 1, "-") == 0;
  if (tiny) return 0.0;
  return text[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

std::optional<std::int64_t> JsonValue::as_integer() const {
  if (kind != Kind::kNumber) return std::nullopt;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  std::int64_t integer = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), integer);
  if (error == std::errc() && end == text.data() + text.size()) return integer;
  const double number = *as_number();
  // 2^63 as a double; NaN fails the comparison too.
  if (!(std::fabs(number) < 9223372036854775808.0) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::string JsonValue::show(std::size_t limit) const {
  std::string out;
  show_into(*this, limit, out);
  if (out.size() > limit) {
    std::size_t cut = limit;
    while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0U) == 0x80) --cut;
    out.resize(cut);
    out += "...";
  }
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      const char* digits = "0123456789abcdef";
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string("\\u00") + digits[byte >> 4U] + digits[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace intarsia::formats
