#include "intarsia/formats/json.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '+' || c == '$';
}

// Bytes of the UTF-8 character that starts at text[i], or 0 when there is none (overlong forms and surrogates
// included).
int utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U; };
  const unsigned lead = byte(i);
  if (lead < 0x80) return 1;
  const int length = lead >= 0xC2 && lead <= 0xDF   ? 2
                     : (lead & 0xF0U) == 0xE0       ? 3
                     : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                    : 0;
  for (int k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80) return 0;
  }
  const unsigned second = byte(i + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
      (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0U | (code >> 6U));
    out += static_cast<char>(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0U | (code >> 12U));
    out += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
    out += static_cast<char>(0x80U | (code & 0x3FU));
  } else {
    out += static_cast<char>(0xF0U | (code >> 18U));
    out += static_cast<char>(0x80U | ((code >> 12U) & 0x3FU));
    out += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
    out += static_cast<char>(0x80U | (code & 0x3FU));
  }
}

// Whether `word` has the shape of a JSON number, a sign and leading or trailing dot being forgiven.
bool looks_like_number(std::string_view word) {
  std::size_t i = !word.empty() && (word[0] == '-' || word[0] == '+') ? 1 : 0;
  const std::size_t start = i;
  int digits = 0;
  const auto run = [&] {
    for (; i < word.size() && word[i] >= '0' && word[i] <= '9'; ++i) ++digits;
  };
  run();
  if (i < word.size() && word[i] == '.') {
    ++i;
    run();
  }
  if (digits == 0) return false;
  if (word.size() > start + 1 && word[start] == '0' && word[start + 1] >= '0' && word[start + 1] <= '9') return false;
  if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
    ++i;
    if (i < word.size() && (word[i] == '-' || word[i] == '+')) ++i;
    digits = 0;
    run();
    if (digits == 0) return false;
  }
  return i == word.size();
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name, const JsonOptions& options)
      : text_(text), name_(name), options_(options) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
    check_utf8();
  }

  JsonValue parse() {
    skip_space();
    if (at_end()) stop("the file is empty; at least {} is needed");
    JsonValue root = value(1);
    skip_space();
    if (!at_end()) stop("text after the end of the value", std::string(rest_of_word()));
    return root;
  }

 private:
  bool at_end() const { return i_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return i_ + ahead < text_.size() ? text_[i_ + ahead] : '\0'; }
  JsonPlace here() const { return {line_, column_}; }

  void step() {
    if (text_[i_] == '\n') {
      ++line_;
      column_ = 1;
    } else if ((static_cast<unsigned char>(text_[i_]) & 0xC0U) != 0x80) {
      ++column_;
    }
    ++i_;
  }

  [[noreturn]] void stop_at(JsonPlace at, std::string reason, std::string found = {}) const {
    throw JsonError(name_, at, join(path_, "."), std::move(found), std::move(reason));
  }
  [[noreturn]] void stop(std::string reason, std::string found = {}) const {
    stop_at(here(), std::move(reason), std::move(found));
  }

  void check_utf8() {
    JsonPlace at{1, 1};
    for (std::size_t i = 0; i < text_.size();) {
      const int length = utf8_length(text_, i);
      if (length == 0) {
        stop_at(at, "the file is not UTF-8: byte 0x" + hex(static_cast<unsigned char>(text_[i])) +
                        "; save it in UTF-8 encoding");
      }
      if (text_[i] == '\n') {
        ++at.line;
        at.column = 1;
      } else {
        ++at.column;
      }
      i += static_cast<std::size_t>(length);
    }
  }

  static std::string hex(unsigned char byte) {
    const char* digits = "0123456789abcdef";
    return {digits[byte >> 4U], digits[byte & 15U]};
  }

  std::string_view rest_of_word() const {
    std::size_t end = i_;
    while (end < text_.size() && end < i_ + 40 && !is_blank(text_[end]) && text_[end] != '\n') ++end;
    return text_.substr(i_, end - i_);
  }

  // Skips blanks, line ends and comments; returns whether a line end was passed.
  bool skip_space() {
    bool new_line = false;
    while (!at_end()) {
      const char c = peek();
      if (c == '\n') {
        new_line = true;
        step();
      } else if (is_blank(c)) {
        step();
      } else if (c == '#' || (c == '/' && peek(1) == '/')) {
        while (!at_end() && peek() != '\n') step();
      } else if (c == '/' && peek(1) == '*') {
        const JsonPlace at = here();
        const std::size_t close = text_.find("*/", i_ + 2);
        if (close == std::string_view::npos) stop_at(at, "a comment that is opened with /* is never closed");
        while (i_ < close + 2) {
          new_line = new_line || peek() == '\n';
          step();
        }
      } else {
        break;
      }
    }
    return new_line;
  }

  JsonValue value(int depth) {
    const char c = peek();
    JsonValue result;
    result.place = here();
    if (c == '{' || c == '[') {
      if (depth > options_.max_depth) {
        stop(concat("nested too deep: more than ", options_.max_depth, " objects and arrays inside each other"));
      }
      c == '{' ? object(result, depth) : array(result, depth);
    } else if (c == '"' || c == '\'') {
      result.kind = JsonValue::Kind::kString;
      result.text = quoted();
    } else {
      word(result);
    }
    return result;
  }

  void word(JsonValue& result) {
    const std::size_t begin = i_;
    const JsonPlace at = here();
    while (!at_end() && is_bare(peek())) step();
    const std::string_view found = text_.substr(begin, i_ - begin);
    if (found == "true" || found == "false") {
      result.kind = JsonValue::Kind::kBool;
      result.boolean = found == "true";
    } else if (found == "null") {
      result.kind = JsonValue::Kind::kNull;
    } else if (found == "NaN" || found == "Infinity" || found == "-Infinity" || looks_like_number(found)) {
      result.kind = JsonValue::Kind::kNumber;
      result.text = found;
    } else if (found.empty()) {
      const bool end = at_end();
      stop_at(at, end ? "the file ends where a value should stand" : "a value is expected",
              end ? "" : std::string(rest_of_word()));
    } else if (found == "True" || found == "False" || found == "None") {
      stop_at(at,
              concat("not JSON; write ", found == "True"    ? "true"
                                         : found == "False" ? "false"
                                                            : "null"),
              std::string(found));
    } else {
      stop_at(at, "neither a number nor true, false or null; text needs quotes", printable(found));
    }
  }

  void array(JsonValue& result, int depth) {
    result.kind = JsonValue::Kind::kArray;
    step();
    skip_space();
    while (peek() != ']' || at_end()) {
      if (at_end()) stop(concat("the file ends inside the array that begins in line ", result.place.line));
      result.items.push_back(value(depth + 1));
      separator(']', "array", result.place);
    }
    step();
  }

  void object(JsonValue& result, int depth) {
    result.kind = JsonValue::Kind::kObject;
    std::set<std::string> seen;
    step();
    skip_space();
    while (peek() != '}' || at_end()) {
      if (at_end()) stop(concat("the file ends inside the object that begins in line ", result.place.line));
      JsonMember member;
      member.place = here();
      member.key = key();
      path_.push_back(printable(member.key));
      skip_space();
      if (peek() != ':') stop("a colon is expected after the key", std::string(rest_of_word()));
      step();
      skip_space();
      if (at_end()) stop("the file ends where a value should stand");
      member.value = value(depth + 1);
      if (!seen.insert(member.key).second) {
        const JsonMember* first = result.find(member.key);
        stop_at(member.place,
                concat("the key stands twice, first in line ", first->place.line, " with ", first->value.show(),
                       ", here with ", member.value.show(), "; keep one"),
                concat(first->value.show(), " and ", member.value.show()));
      }
      path_.pop_back();
      result.members.push_back(std::move(member));
      separator('}', "object", result.place);
    }
    step();
  }

  // Between two items: a comma or a line end, or neither before the closing bracket.
  void separator(char close, const char* what, JsonPlace begin) {
    bool separated = skip_space();
    if (peek() == ',') {
      step();
      skip_space();
      separated = true;
    }
    if (at_end()) stop(concat("the file ends inside the ", what, " that begins in line ", begin.line));
    if (peek() != close && !separated) {
      stop(concat("a comma or ", close, " is expected in the ", what, " that begins in line ", begin.line),
           printable(rest_of_word()));
    }
  }

  std::string key() {
    if (peek() == '"' || peek() == '\'') return quoted();
    const std::size_t begin = i_;
    while (!at_end() && is_bare(peek())) step();
    if (i_ == begin) stop("a key is expected", printable(rest_of_word()));
    return std::string(text_.substr(begin, i_ - begin));
  }

  std::string quoted() {
    const JsonPlace at = here();
    const char quote = peek();
    std::string out;
    step();
    while (true) {
      if (at_end() || peek() == '\n') stop_at(at, "text whose quote is not closed in its line");
      const char c = peek();
      if (c == quote) break;
      if (c == '\\') {
        escape(out);
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20 && c != '\t') {
        stop("a control character inside quotes; write it as \\u00" + hex(static_cast<unsigned char>(c)));
      }
      out += c;
      step();
    }
    step();
    return out;
  }

  std::uint32_t four_digits() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(std::min(i_, text_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4) {
      stop("\\u needs four hexadecimal digits");
    }
    for (int k = 0; k < 4; ++k) step();
    return code;
  }

  void escape(std::string& out) {
    static constexpr std::string_view kFrom = "\"'\\/bfnrt";
    static constexpr std::string_view kTo = "\"'\\/\b\f\n\r\t";
    const char c = peek(1);
    const std::size_t known = c == '\0' ? std::string_view::npos : kFrom.find(c);
    if (known != std::string_view::npos) {
      step();
      step();
      out += kTo[known];
      return;
    }
    if (c != 'u') stop("unknown escape; \\\\ is a backslash", printable(text_.substr(i_, 2)));
    step();
    step();
    std::uint32_t code = four_digits();
    if (code >= 0xD800 && code < 0xDC00 && peek() == '\\' && peek(1) == 'u') {
      step();
      step();
      const std::uint32_t low = four_digits();
      if (low < 0xDC00 || low > 0xDFFF) stop("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code <= 0xDFFF) stop("half a surrogate pair");
    append_utf8(out, code);
  }

  std::string_view text_;
  const std::string& name_;
  const JsonOptions& options_;
  std::size_t i_ = 0;
  int line_ = 1;
  int column_ = 1;
  std::vector<std::string> path_;  // of the keys being read
};

std::string message(const std::string& name, JsonPlace at, const std::string& path, const std::string& found,
                    const std::string& reason) {
  std::string out = concat(name, ":", at.line, ":", at.column, ": ");
  if (!path.empty()) out += path + ": ";
  if (!found.empty()) out += found + ": ";
  return out + reason;
}

}  // namespace

JsonError::JsonError(const std::string& name, JsonPlace at, std::string key_path, std::string found, std::string reason)
    : Error(ErrorKind::kFormat, message(name, at, key_path, found, reason)),
      place_(at),
      path_(std::move(key_path)),
      value_(std::move(found)),
      detail_(std::move(reason)) {}

JsonValue parse_json(std::string_view text, const std::string& name, const JsonOptions& options) {
  INTARSIA_CHECK(kFormat, text.size() <= options.max_bytes, name, ": ", text.size(),
                 " bytes; a configuration of at most ", options.max_bytes, " bytes is expected");
  return Parser(text, name, options).parse();
}

JsonValue read_json_file(const std::string& path, const JsonOptions& options) {
  std::ifstream in(path, std::ios::binary);
  INTARSIA_CHECK(kIo, in.good(), printable(path), ": cannot be opened: ", std::strerror(errno));
  std::string text(options.max_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  INTARSIA_CHECK(kIo, !in.bad(), printable(path), ": cannot be read: ", std::strerror(errno));
  text.resize(static_cast<std::size_t>(in.gcount()));
  INTARSIA_CHECK(kFormat, text.size() <= options.max_bytes, printable(path), ": larger than ", options.max_bytes,
                 " bytes, so it is no configuration");
  return parse_json(text, printable(path), options);
}

}  // namespace intarsia::formats
