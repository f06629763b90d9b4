#include "intarsia/formats/chat_template/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "intarsia/formats/chat_template/builtins.h"

namespace intarsia::formats::chat {
namespace {

template <typename... Items>
ExpressionPtr make(Expression::Kind kind, int line, std::string name, Items... items) {
  auto out = std::make_unique<Expression>();
  out->kind = kind;
  out->line = line;
  out->name = std::move(name);
  (out->items.push_back(std::move(items)), ...);
  return out;
}

ExpressionPtr constant(Value value, int line) {
  auto out = make(Expression::kConstant, line, "");
  out->constant = std::move(value);
  return out;
}

}  // namespace

std::string TokenReader::shown() const {
  switch (peek().kind) {
    case Token::kBlockEnd:
      return "%}";
    case Token::kPrintEnd:
      return "}}";
    case Token::kEnd:
      return "the end of the template";
    case Token::kString:
      return "a text";
    default:
      return concat("\"", printable(peek().text), "\"");
  }
}

// Counts how deep the parser is, so that a hostile template cannot overflow the stack.
class ExpressionParser::Deeper {
 public:
  explicit Deeper(ExpressionParser& parser) : depth_(parser.depth_) {
    if (++depth_ > kMaxTreeDepth) parser.in_.refuse("expressions nested more than ", kMaxTreeDepth, " deep");
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

ExpressionPtr ExpressionParser::tuple() {
  const int line = in_.peek().line;
  ExpressionPtr first = one();
  if (!in_.is(",")) return first;
  auto out = make(Expression::kList, line, "", std::move(first));
  while (in_.take(",")) {
    if (in_.peek().kind == Token::kBlockEnd || in_.peek().kind == Token::kPrintEnd) break;
    out->items.push_back(one());
  }
  return out;
}

ExpressionPtr ExpressionParser::without_condition() { return any_of(); }

ExpressionPtr ExpressionParser::one() {
  const Deeper deeper(*this);
  ExpressionPtr out = any_of();
  while (in_.is_name("if")) {
    const int line = in_.next().line;
    ExpressionPtr condition = any_of();
    ExpressionPtr otherwise = in_.take_name("else") ? one() : nullptr;
    out = make(Expression::kConditional, line, "", std::move(out), std::move(condition), std::move(otherwise));
  }
  return out;
}

// Chains of equal operators make trees that lean to the left; how long they may be is limited like depth is.
ExpressionPtr ExpressionParser::binary(std::initializer_list<std::string_view> symbols,
                                       ExpressionPtr (ExpressionParser::*part)()) {
  ExpressionPtr out = (this->*part)();
  for (int count = 0;; ++count) {
    const auto symbol = std::find_if(symbols.begin(), symbols.end(), [&](std::string_view s) { return in_.is(s); });
    if (symbol == symbols.end()) return out;
    if (count > kMaxTreeDepth) in_.refuse("more than ", kMaxTreeDepth, " operators in a row");
    const int line = in_.next().line;
    out = make(Expression::kBinary, line, std::string(*symbol), std::move(out), (this->*part)());
  }
}

ExpressionPtr ExpressionParser::any_of() {
  ExpressionPtr out = all_of();
  for (int count = 0; in_.is_name("or"); ++count) {
    if (count > kMaxTreeDepth) in_.refuse("more than ", kMaxTreeDepth, " \"or\" in a row");
    const int line = in_.next().line;
    out = make(Expression::kOr, line, "", std::move(out), all_of());
  }
  return out;
}

ExpressionPtr ExpressionParser::all_of() {
  ExpressionPtr out = negation();
  for (int count = 0; in_.is_name("and"); ++count) {
    if (count > kMaxTreeDepth) in_.refuse("more than ", kMaxTreeDepth, " \"and\" in a row");
    const int line = in_.next().line;
    out = make(Expression::kAnd, line, "", std::move(out), negation());
  }
  return out;
}

ExpressionPtr ExpressionParser::negation() {
  const Deeper deeper(*this);
  if (!in_.is_name("not")) return comparison();
  const int line = in_.next().line;
  return make(Expression::kUnary, line, "not", negation());
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = in_.peek().line;
  ExpressionPtr first = sum();
  ExpressionPtr out;
  const auto add = [&](std::string symbol) {
    if (!out) out = make(Expression::kCompare, line, "", std::move(first));
    out->operators.push_back(std::move(symbol));
    out->items.push_back(sum());
  };
  while (true) {
    if (in_.is_name("in")) {
      in_.next();
      add("in");
    } else if (in_.is_name("not") && in_.peek(1).kind == Token::kName && in_.peek(1).text == "in") {
      in_.next();
      in_.next();
      add("not in");
    } else if (in_.is("==") || in_.is("!=") || in_.is("<") || in_.is("<=") || in_.is(">") || in_.is(">=")) {
      add(in_.next().text);
    } else {
      return out ? std::move(out) : std::move(first);
    }
  }
}

ExpressionPtr ExpressionParser::sum() { return binary({"+", "-"}, &ExpressionParser::concatenation); }
ExpressionPtr ExpressionParser::concatenation() { return binary({"~"}, &ExpressionParser::product); }
ExpressionPtr ExpressionParser::product() { return binary({"*", "//", "/", "%"}, &ExpressionParser::power); }

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr out = unary(true);
  if (in_.is("**")) in_.refuse_unsupported("the operator **");
  return out;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  ExpressionPtr out;
  if (in_.is("-") || in_.is("+")) {
    const Token& sign = in_.next();
    out = make(Expression::kUnary, sign.line, sign.text, unary(false));
  } else {
    out = postfix(primary());
  }
  return with_filters ? filters_and_tests(std::move(out)) : std::move(out);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = in_.peek();
  switch (token.kind) {
    case Token::kName:
      in_.next();
      if (token.text == "true" || token.text == "True") return constant(Value(true), token.line);
      if (token.text == "false" || token.text == "False") return constant(Value(false), token.line);
      if (token.text == "none" || token.text == "None") return constant(Value(None{}), token.line);
      return make(Expression::kName, token.line, token.text);
    case Token::kString:
      return string();
    case Token::kInteger: {
      in_.next();
      std::int64_t value = 0;
      const char* end = token.text.data() + token.text.size();
      if (std::from_chars(token.text.data(), end, value).ec != std::errc()) in_.refuse("an integer beyond 64 bits");
      return constant(Value(value), token.line);
    }
    case Token::kFloat: {
      in_.next();
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      return constant(Value(value), token.line);
    }
    default:
      break;
  }
  if (in_.take("[")) return list("]");
  if (in_.take("{")) return dict();
  if (!in_.take("(")) in_.refuse("an expression is expected, found ", in_.shown());
  if (in_.is(")")) return list(")");
  ExpressionPtr first = one();
  if (in_.take(")")) return first;
  if (!in_.take(",")) in_.refuse("\",\" or \")\" is expected, found ", in_.shown());
  ExpressionPtr rest = list(")");
  rest->items.insert(rest->items.begin(), std::move(first));
  return rest;
}

ExpressionPtr ExpressionParser::string() {
  const int line = in_.peek().line;
  std::string text;
  while (in_.peek().kind == Token::kString) text += in_.next().text;  // neighbours are one text
  return constant(Value(std::move(text)), line);
}

ExpressionPtr ExpressionParser::list(std::string_view close) {
  auto out = make(Expression::kList, in_.peek().line, "");
  while (!in_.take(close)) {
    out->items.push_back(one());
    if (!in_.is(close) && !in_.take(",")) in_.refuse("\",\" or \"", close, "\" is expected, found ", in_.shown());
  }
  return out;
}

ExpressionPtr ExpressionParser::dict() {
  auto out = make(Expression::kDict, in_.peek().line, "");
  while (!in_.take("}")) {
    out->items.push_back(one());
    if (!in_.take(":")) in_.refuse("\":\" is expected in a dict, found ", in_.shown());
    out->items.push_back(one());
    if (!in_.is("}") && !in_.take(",")) in_.refuse("\",\" or \"}\" is expected, found ", in_.shown());
  }
  return out;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (int count = 0;; ++count) {
    if (count > kMaxTreeDepth) in_.refuse("more than ", kMaxTreeDepth, " accesses in a row");
    const int line = in_.peek().line;
    if (in_.take(".")) {
      value = make(Expression::kAttribute, line, in_.expect(Token::kName, "the name of an attribute").text,
                   std::move(value));
    } else if (in_.take("[")) {
      value = subscript(std::move(value));
    } else if (in_.take("(")) {
      value = make(Expression::kCall, line, "", std::move(value));
      arguments(*value);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const int line = in_.peek().line;
  std::vector<ExpressionPtr> parts(1);
  while (!in_.is("]")) {
    if (in_.take(":")) {
      parts.emplace_back();
      if (parts.size() > 3) in_.refuse("a slice of more than three parts");
    } else if (!parts.back()) {
      parts.back() = one();
    } else {
      in_.refuse("\"]\" is expected, found ", in_.shown());
    }
  }
  in_.next();
  if (parts.size() == 1) {
    if (!parts[0]) in_.refuse("empty brackets");
    return make(Expression::kIndex, line, "", std::move(value), std::move(parts[0]));
  }
  parts.resize(3);
  return make(Expression::kSlice, line, "", std::move(value), std::move(parts[0]), std::move(parts[1]),
              std::move(parts[2]));
}

// Behind "(".
void ExpressionParser::arguments(Expression& call) {
  while (!in_.take(")")) {
    if (in_.is("*")) in_.refuse_unsupported("arguments with *");
    if (in_.peek().kind == Token::kName && in_.peek(1).kind == Token::kOperator && in_.peek(1).text == "=") {
      std::string name = in_.next().text;
      in_.next();
      call.named.emplace_back(std::move(name), one());
    } else {
      if (!call.named.empty()) in_.refuse("an argument without a name after one with a name");
      call.items.push_back(one());
    }
    if (!in_.is(")") && !in_.take(",")) in_.refuse("\",\" or \")\" is expected, found ", in_.shown());
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  for (int count = 0;; ++count) {
    if (count > kMaxTreeDepth) in_.refuse("more than ", kMaxTreeDepth, " filters in a row");
    const int line = in_.peek().line;
    if (in_.take("|")) {
      const std::string name = in_.expect(Token::kName, "the name of a filter").text;
      if (!is_filter(name)) in_.refuse_unsupported("the filter ", printable(name));
      value = make(Expression::kFilter, line, name, std::move(value));
      if (in_.take("(")) arguments(*value);
    } else if (in_.take_name("is")) {
      value = test(std::move(value));
    } else if (in_.take("(")) {
      value = make(Expression::kCall, line, "", std::move(value));
      arguments(*value);
    } else {
      return value;
    }
  }
}

// Behind "is".
ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const int line = in_.peek().line;
  const bool negated = in_.take_name("not");
  const std::string name = in_.expect(Token::kName, "the name of a test").text;
  if (!is_test(name)) in_.refuse_unsupported("the test ", printable(name));
  ExpressionPtr out = make(Expression::kTest, line, name, std::move(value));
  const Token& token = in_.peek();
  const bool word = token.kind == Token::kName && token.text != "else" && token.text != "or" && token.text != "and" &&
                    token.text != "is" && token.text != "if" && token.text != "not" && token.text != "in";
  const bool literal = token.kind == Token::kString || token.kind == Token::kInteger || token.kind == Token::kFloat;
  if (in_.take("(")) {
    arguments(*out);
  } else if (word || literal || in_.is("[") || in_.is("{")) {
    out->items.push_back(postfix(primary()));
  }
  return negated ? make(Expression::kUnary, line, "not", std::move(out)) : std::move(out);
}

}  // namespace intarsia::formats::chat
