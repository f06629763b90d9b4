#include "intarsia/formats/yaml.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <vector>

#include "intarsia/base/text.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

using Kind = JsonValue::Kind;

constexpr std::string_view kTrue[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"};
constexpr std::string_view kFalse[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"};
constexpr std::string_view kNull[] = {"", "~", "null", "Null", "NULL"};

template <typename Words>
bool is_one_of(std::string_view word, const Words& words) {
  return std::ranges::find(words, word) != std::end(words);
}

// 5, -2.5, 5e8, 2e-5. YAML 1.1 wants a point and a sign in the exponent; by meaning these are numbers.
bool is_number(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t from = at;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
    return at > from;
  };
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  bool any = digits();
  if (at < text.size() && text[at] == '.') {
    ++at;
    any = digits() || any;
  }
  if (!any) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

JsonValue value_of(Kind kind, JsonPlace place) {
  JsonValue out;
  out.kind = kind;
  out.place = place;
  return out;
}

JsonValue plain(std::string_view text, JsonPlace place) {
  JsonValue out = value_of(Kind::kString, place);
  out.text = text;
  if (is_one_of(text, kNull)) {
    out.kind = Kind::kNull;
  } else if (is_one_of(text, kTrue) || is_one_of(text, kFalse)) {
    out.kind = Kind::kBool;
    out.boolean = is_one_of(text, kTrue);
  } else if (is_number(text)) {
    out.kind = Kind::kNumber;
  }
  return out;
}

struct Line {
  int number = 0;
  std::size_t indent = 0;
  std::string_view text;  // without indentation, comment and blanks at the end
};

class YamlReader {
 public:
  YamlReader(std::string_view text, std::string name, const JsonOptions& options)
      : name_(std::move(name)), options_(options) {
    if (text.size() > options.max_bytes)
      fail({1, 1}, concat(text.size(), " bytes"), concat("at most ", options.max_bytes, " are allowed"));
    split(text);
  }

  JsonValue run() {
    JsonValue root = value_of(Kind::kObject, {1, 1});
    if (lines_.empty()) return root;
    root = block(lines_[0].indent, 0);
    if (at_ < lines_.size()) fail(place(lines_[at_]), std::string(lines_[at_].text), "this line has no place here");
    return root;
  }

 private:
  [[noreturn]] void fail(JsonPlace at, std::string found, std::string reason) const {
    throw JsonError(name_, at, "", std::move(found), std::move(reason));
  }
  static JsonPlace place(const Line& line, std::size_t column = 0) {
    return {line.number, static_cast<int>(line.indent + column) + 1};
  }

  // A comment begins with # at the begin of a line or behind a blank, outside of quotes.
  static std::string_view without_comment(std::string_view text) {
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (quote != 0) {
        if (c == '\\' && quote == '"') ++i;
        if (c == quote) quote = 0;
      } else if ((c == '\'' || c == '"') &&
                 (i == 0 || text[i - 1] == ' ' || text[i - 1] == '[' || text[i - 1] == ',')) {
        quote = c;
      } else if (c == '#' && (i == 0 || text[i - 1] == ' ')) {
        return text.substr(0, i);
      }
    }
    return text;
  }

  void split(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    for (int number = 1; !text.empty(); ++number) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      line = without_comment(line.substr(indent));
      while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
      if (line.empty() || (line == "---" && lines_.empty())) continue;
      const JsonPlace at{number, static_cast<int>(indent) + 1};
      if (line[0] == '\t') fail({number, static_cast<int>(indent) + 2}, "a tab", "indent with spaces");
      if (line == "---" || line == "...") fail(at, std::string(line), "a second document is not read");
      if (line[0] == '%') fail(at, std::string(line), "directives are not read");
      if (std::ranges::any_of(line, [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\t'; }))
        fail(at, "a control character", "it is not allowed");
      lines_.push_back({number, indent, line});
    }
  }

  // The lines from the present one on that stand at `indent`.
  JsonValue block(std::size_t indent, int depth) {
    if (depth > options_.max_depth) fail(place(lines_[at_]), "", concat("more than ", options_.max_depth, " levels"));
    return lines_[at_].text.starts_with("- ") || lines_[at_].text == "-" ? list(indent) : mapping(indent, depth);
  }

  JsonValue list(std::size_t indent) {
    JsonValue out = value_of(Kind::kArray, place(lines_[at_]));
    for (; at_ < lines_.size() && lines_[at_].indent == indent && lines_[at_].text.starts_with("-"); ++at_) {
      const Line& line = lines_[at_];
      std::size_t begin = line.text.find_first_not_of(' ', 1);
      if (begin == std::string_view::npos || begin == 1)
        fail(place(line), std::string(line.text), "a list has one scalar behind each -");
      const std::string_view item = line.text.substr(begin);
      if (key_end(item)) fail(place(line, begin), std::string(item), "mappings in lists are not read");
      out.items.push_back(scalar(item, place(line, begin)));
    }
    return out;
  }

  // Where a key ends: at a colon with a blank or nothing behind it.
  static std::optional<std::size_t> key_end(std::string_view text) {
    if (!text.empty() && (text[0] == '\'' || text[0] == '"')) {
      const std::size_t close = text.find(text[0], 1);
      if (close == std::string_view::npos || close + 1 >= text.size() || text[close + 1] != ':') return std::nullopt;
      return close + 1;
    }
    for (std::size_t at = text.find(':'); at != std::string_view::npos; at = text.find(':', at + 1))
      if (at + 1 == text.size() || text[at + 1] == ' ') return at;
    return std::nullopt;
  }

  JsonValue mapping(std::size_t indent, int depth) {
    JsonValue out = value_of(Kind::kObject, place(lines_[at_]));
    while (at_ < lines_.size() && lines_[at_].indent == indent) {
      const Line line = lines_[at_];
      const auto colon = key_end(line.text);
      if (!colon) fail(place(line), std::string(line.text), "expected KEY: VALUE");
      std::string key(line.text.substr(0, *colon));
      if (key.size() >= 2 && (key[0] == '\'' || key[0] == '"')) key = key.substr(1, key.size() - 2);
      if (key.empty() || std::string_view("&*!|>?{[-").find(key[0]) != std::string_view::npos)
        fail(place(line), std::string(line.text), "expected KEY: VALUE");
      if (const JsonMember* const other = out.find(key))
        fail(place(line), key, concat("the key stands in line ", other->place.line, " too"));
      const std::size_t begin = line.text.find_first_not_of(' ', *colon + 1);
      ++at_;
      JsonMember member{.key = key, .place = place(line), .value = {}};
      if (begin != std::string_view::npos) {
        member.value = scalar(line.text.substr(begin), place(line, begin));
        if (at_ < lines_.size() && lines_[at_].indent > indent)
          fail(place(lines_[at_]), std::string(lines_[at_].text),
               concat("\"", printable(key), "\" has a value already"));
      } else if (at_ < lines_.size() && (lines_[at_].indent > indent ||
                                         (lines_[at_].indent == indent && lines_[at_].text.starts_with("- ")))) {
        member.value = block(lines_[at_].indent, depth + 1);  // a list may stand below its key
      } else {
        member.value = plain("", place(line, *colon));
      }
      out.members.push_back(std::move(member));
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent)
      fail(place(lines_[at_]), std::string(lines_[at_].text), "it is indented further than the line before");
    return out;
  }

  JsonValue quoted(std::string_view text, JsonPlace at) const {
    const char quote = text[0];
    JsonValue out = value_of(Kind::kString, at);
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i] == quote && quote == '\'' && i + 1 < text.size() && text[i + 1] == quote) {
        out.text += quote;
        ++i;
      } else if (text[i] == quote) {
        if (i + 1 != text.size()) fail(at, std::string(text), "there is more behind the quotes");
        return out;
      } else if (text[i] == '\\' && quote == '"') {
        const char next = i + 1 < text.size() ? text[i + 1] : ' ';
        if (next != '\\' && next != '"' && next != '/')
          fail(at, std::string(text), "of escapes only \\\\, \\\" and \\/ are read");
        out.text += next;
        ++i;
      } else {
        out.text += text[i];
      }
    }
    fail(at, std::string(text), "the quotes do not end on this line");
  }

  JsonValue scalar(std::string_view text, JsonPlace at) const {
    if (text[0] == '\'' || text[0] == '"') return quoted(text, at);
    if (text == "{}") return value_of(Kind::kObject, at);
    if (text[0] == '[') return flow_list(text, at);
    if (std::string_view("&*!|>{}]%@`,").find(text[0]) != std::string_view::npos)
      fail(at, std::string(text), "anchors, tags, block texts and flow mappings are not read");
    if (text.find(": ") != std::string_view::npos || text.back() == ':')
      fail(at, std::string(text), "a value with a colon must stand in quotes");
    return plain(text, at);
  }

  // [a, 'b', 3] on one line, of scalars.
  JsonValue flow_list(std::string_view text, JsonPlace at) const {
    JsonValue out = value_of(Kind::kArray, at);
    if (text.back() != ']') fail(at, std::string(text), "a list must end on its line");
    std::string_view rest = text.substr(1, text.size() - 2);
    const auto trim = [](std::string_view word) {
      const std::size_t begin = std::min(word.find_first_not_of(' '), word.size());
      word.remove_prefix(begin);
      while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
      return word;
    };
    if (trim(rest).empty()) return out;
    for (bool more = true; more;) {
      const std::size_t comma = rest.find(',');
      more = comma != std::string_view::npos;
      const std::string_view item = trim(rest.substr(0, comma));
      if (item.empty() || item[0] == '[') fail(at, std::string(text), "expected scalars between commas");
      out.items.push_back(scalar(item, at));
      if (more) rest.remove_prefix(comma + 1);
    }
    return out;
  }

  std::string name_;
  const JsonOptions& options_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

JsonValue parse_yaml(std::string_view text, const std::string& name, const JsonOptions& options) {
  return YamlReader(text, name, options).run();
}

JsonValue read_yaml_file(const std::string& path, const JsonOptions& options) {
  return parse_yaml(io::read_text_file(path, options.max_bytes), path, options);
}

std::string yaml_quote(std::string_view text) {
  const bool is_plain =
      !text.empty() && plain(text, {}).kind == Kind::kString &&
      std::ranges::all_of(text,
                          [](unsigned char c) {
                            return std::isalnum(c) != 0 || c == '_' || c == '/' || c == '.' || c == ',' || c == '-';
                          }) &&
      text[0] != '-' && text[0] != ',';
  if (is_plain) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

}  // namespace intarsia::formats
