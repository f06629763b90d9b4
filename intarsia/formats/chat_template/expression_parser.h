// Parses the expressions of a chat template. Internal to formats.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/chat_template/parser.h"

namespace intarsia::formats::chat {

// The tokens of a template, read one by one.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, std::string name) : tokens_(std::move(tokens)), name_(std::move(name)) {}

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(std::string_view symbol) const { return peek().kind == Token::kOperator && peek().text == symbol; }
  bool is_name(std::string_view word) const { return peek().kind == Token::kName && peek().text == word; }
  bool take(std::string_view symbol) {
    if (!is(symbol)) return false;
    next();
    return true;
  }
  bool take_name(std::string_view word) {
    if (!is_name(word)) return false;
    next();
    return true;
  }
  const Token& expect(Token::Kind kind, std::string_view what) {
    if (peek().kind != kind) refuse(what, " is expected, found ", shown());
    return next();
  }
  // The next token, for messages.
  std::string shown() const;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kFormat, name_, ", line ", peek().line, ": ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void refuse_unsupported(const Parts&... parts) const {
    fail(ErrorKind::kUnsupported, name_, ", line ", peek().line, ": the template uses ", parts...,
         ", which is not supported");
  }

 private:
  std::vector<Token> tokens_;
  std::string name_;
  std::size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& in) : in_(in) {}

  ExpressionPtr one();                // no comma
  ExpressionPtr tuple();              // one, or a list of several with commas between them
  ExpressionPtr without_condition();  // one without "if ... else" at its end

 private:
  class Deeper;

  ExpressionPtr any_of();
  ExpressionPtr all_of();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr string();
  ExpressionPtr list(std::string_view close);
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  void arguments(Expression& call);
  ExpressionPtr binary(std::initializer_list<std::string_view> symbols, ExpressionPtr (ExpressionParser::*part)());

  TokenReader& in_;
  int depth_ = 0;
};

}  // namespace intarsia::formats::chat
