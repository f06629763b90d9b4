#include "intarsia/formats/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats::chat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_begin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_begin(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string normal_lines(std::string_view source) {
  std::string out = replace_all(replace_all(source, "\r\n", "\n"), "\r", "\n");
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : source_(normal_lines(source)), name_(name) {}

  std::vector<Token> run() {
    bool line_begins = true;  // the last tag took the line end behind it
    while (at_ < source_.size()) {
      const std::size_t tag = find_tag();
      text(tag, line_begins);
      if (tag == source_.size()) break;
      const char kind = source_[tag + 1];
      at_ = tag + 2;
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (kind == '#') {
        comment();
      } else {
        add(kind == '%' ? Token::kBlockBegin : Token::kPrintBegin, "");
        expression(kind);
      }
      line_begins = at_ > 0 && source_[at_ - 1] == '\n';
    }
    add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kFormat, name_, ", line ", line_, ": ", parts...);
  }

  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  std::size_t find_tag() const {
    for (std::size_t tag = at_; (tag = source_.find('{', tag)) != source_.npos; ++tag) {
      if (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos)
        return tag;
    }
    return source_.size();
  }

  // The text before the tag at `end`, less what the tag's white space control takes.
  void text(std::size_t end, bool line_begins) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    const bool is_tag = end < source_.size();
    const char sign = is_tag && end + 2 < source_.size() ? source_[end + 2] : ' ';
    if (is_tag && sign == '-') {
      while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    } else if (is_tag && sign != '+' && source_[end + 1] != '{') {
      const std::size_t begin = text.rfind('\n') + 1;  // 0 when there is none
      if ((begin > 0 || line_begins) &&
          std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_space))
        text = text.substr(0, begin);
    }
    if (!text.empty()) add(Token::kText, std::string(text));
    advance(end);
  }

  // Behind the end of a block or a comment.
  void trim(char sign) {
    if (sign == '-') {
      std::size_t end = at_;
      while (end < source_.size() && is_space(source_[end])) ++end;
      advance(end);
    } else if (sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      advance(at_ + 1);
    }
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) refuse("a comment without its end #}");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2);
    trim(sign);
  }

  // Tokens up to the tag's end.
  void expression(char kind) {
    const std::string_view close = kind == '%' ? "%}" : "}}";
    std::string open;  // brackets
    while (true) {
      while (at_ < source_.size() && is_space(source_[at_])) advance(at_ + 1);
      if (at_ == source_.size()) refuse("a tag without its end ", close);
      const std::string_view rest = std::string_view(source_).substr(at_);
      const bool signed_end = (rest[0] == '-' || (rest[0] == '+' && kind == '%')) && rest.substr(1).starts_with(close);
      if (open.empty() && (signed_end || rest.starts_with(close))) {
        add(kind == '%' ? Token::kBlockEnd : Token::kPrintEnd, "");
        at_ += signed_end ? 3 : 2;
        if (kind == '%' || signed_end) trim(signed_end ? rest[0] : ' ');
        return;
      }
      if (is_name_begin(rest[0])) {
        std::size_t end = 1;
        while (end < rest.size() && is_name(rest[end])) ++end;
        add(Token::kName, std::string(rest.substr(0, end)));
        at_ += end;
      } else if (is_digit(rest[0])) {
        number(rest);
      } else if (rest[0] == '"' || rest[0] == '\'') {
        string(rest);
      } else {
        symbol(rest, open);
      }
    }
  }

  void number(std::string_view rest) {
    std::string digits;
    std::size_t end = 0;
    bool is_float = false;
    const auto take = [&] {
      while (end < rest.size() && (is_digit(rest[end]) || rest[end] == '_')) {
        if (rest[end] != '_') digits += rest[end];
        ++end;
      }
    };
    take();
    if (end + 1 < rest.size() && rest[end] == '.' && is_digit(rest[end + 1])) {
      is_float = true;
      digits += rest[end++];
      take();
    }
    if (end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) refuse("a number with an exponent");
    add(is_float ? Token::kFloat : Token::kInteger, digits);
    at_ += end;
  }

  void string(std::string_view rest) {
    std::string value;
    std::size_t at = 1;
    while (at < rest.size() && rest[at] != rest[0]) {
      if (rest[at] != '\\') {
        value += rest[at++];
        continue;
      }
      if (at + 1 == rest.size()) break;
      const char c = rest[at + 1];
      at += 2;
      constexpr std::string_view kLetters = "nrtbfav0\\'\"\n", kValues{"\n\r\t\b\f\a\v\0\\'\"", 11};
      const std::size_t known = kLetters.find(c);
      if (c == '\n') continue;  // a line goes on
      if (known != kLetters.npos) {
        value += kValues[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        std::uint32_t code_point = 0;
        const char* begin = rest.data() + at;
        if (at + count > rest.size() || std::from_chars(begin, begin + count, code_point, 16).ptr != begin + count ||
            code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
          refuse("an escape \\", c, " without ", count, " digits of a character");
        }
        append_utf8(value, code_point);
        at += count;
      } else {
        value += '\\';
        value += c;
      }
    }
    if (at >= rest.size()) refuse("a text without its end ", rest[0]);
    add(Token::kString, std::move(value));
    advance(at_ + at + 1);
  }

  void symbol(std::string_view rest, std::string& open) {
    for (const std::string_view two : {"==", "!=", ">=", "<=", "//", "**"}) {
      if (!rest.starts_with(two)) continue;
      add(Token::kOperator, std::string(two));
      at_ += 2;
      return;
    }
    const char c = rest[0];
    if (std::string_view("+-*/%~[](){}=<>.:|,").find(c) == std::string_view::npos)
      refuse("unexpected \"", printable(rest.substr(0, utf8_part(rest, 0).length)), "\"");
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) refuse("unexpected \"", c, "\"");
      open.pop_back();
    }
    add(Token::kOperator, std::string(1, c));
    ++at_;
  }

  const std::string source_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source, const std::string& name) { return Lexer(source, name).run(); }

}  // namespace intarsia::formats::chat
