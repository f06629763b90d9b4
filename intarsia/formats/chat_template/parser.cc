#include "intarsia/formats/chat_template/parser.h"

#include <charconv>
#include <initializer_list>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/chat_template/builtins.h"
#include "intarsia/formats/chat_template/expression_parser.h"

namespace intarsia::formats::chat {
namespace {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& name) : in_(std::move(tokens), name), expressions_(in_) {}

  Program run() {
    Program program;
    std::string end;
    program.body = body({}, end, 0);
    program.marks_generation = marks_generation_;
    return program;
  }

 private:
  // Statements up to a tag of one of these names, whose name is left in `end` and whose {% is consumed; up to the end
  // of the template when there are none.
  Body body(std::initializer_list<std::string_view> ends, std::string& end, int depth) {
    if (depth > kMaxTreeDepth) in_.refuse("blocks nested more than ", kMaxTreeDepth, " deep");
    Body out;
    while (true) {
      const Token& token = in_.peek();
      if (token.kind == Token::kEnd) {
        if (ends.size() > 0) in_.refuse("the template ends where ", *ends.begin(), " is expected");
        return out;
      }
      if (token.kind == Token::kText) {
        out.push_back({.kind = Statement::kText, .line = token.line, .text = in_.next().text});
      } else if (token.kind == Token::kPrintBegin) {
        const int line = in_.next().line;
        out.push_back({.kind = Statement::kPrint, .line = line, .expression = expressions_.tuple()});
        in_.expect(Token::kPrintEnd, "}}");
      } else {
        const int line = in_.next().line;  // {%
        const std::string name = in_.expect(Token::kName, "the name of a statement").text;
        for (const std::string_view known : ends) {
          if (name != known) continue;
          end = name;
          return out;
        }
        out.push_back(statement(name, depth));
        out.back().line = line;
      }
    }
  }

  Statement statement(const std::string& name, int depth) {
    if (name == "if") return if_statement(depth);
    if (name == "for") return for_statement(depth);
    if (name == "set") return set_statement(depth);
    if (name == "macro") return macro_statement(depth);
    if (name == "generation") {
      in_.expect(Token::kBlockEnd, "%}");
      marks_generation_ = true;
      Statement out{.kind = Statement::kGeneration};
      out.body = closed_body("endgeneration", depth);
      return out;
    }
    if (name == "break" || name == "continue") {
      in_.expect(Token::kBlockEnd, "%}");
      if (loops_ == 0) in_.refuse(name, " outside of a loop");
      return {.kind = name == "break" ? Statement::kBreak : Statement::kContinue};
    }
    in_.refuse_unsupported("the statement ", printable(name));
  }

  Body closed_body(std::string_view end_name, int depth) {
    std::string end;
    Body out = body({end_name}, end, depth + 1);
    in_.expect(Token::kBlockEnd, "%}");
    return out;
  }

  // Behind the word if or elif.
  Statement if_statement(int depth) {
    Statement out{.kind = Statement::kIf, .line = in_.peek().line, .expression = expressions_.tuple()};
    in_.expect(Token::kBlockEnd, "%}");
    std::string end;
    out.body = body({"endif", "else", "elif"}, end, depth + 1);
    if (end == "elif") {
      if (depth > kMaxTreeDepth) in_.refuse("more than ", kMaxTreeDepth, " elif");
      out.otherwise.push_back(if_statement(depth + 1));
      return out;
    }
    in_.expect(Token::kBlockEnd, "%}");
    if (end == "else") out.otherwise = closed_body("endif", depth);
    return out;
  }

  Statement for_statement(int depth) {
    Statement out{.kind = Statement::kFor};
    out.targets = targets();
    if (!in_.take_name("in")) in_.refuse("\"in\" is expected in for");
    out.expression = expressions_.without_condition();
    if (in_.take_name("if")) out.condition = expressions_.one();
    if (in_.take_name("recursive")) in_.refuse_unsupported("a recursive for");
    in_.expect(Token::kBlockEnd, "%}");
    std::string end;
    ++loops_;
    out.body = body({"endfor", "else"}, end, depth + 1);
    --loops_;
    in_.expect(Token::kBlockEnd, "%}");
    if (end == "else") out.otherwise = closed_body("endfor", depth);
    return out;
  }

  std::vector<std::string> targets() {
    std::vector<std::string> out;
    const bool bracket = in_.take("(");
    do {
      out.push_back(in_.expect(Token::kName, "a name").text);
    } while (in_.take(","));
    if (bracket && !in_.take(")")) in_.refuse("\")\" is expected");
    return out;
  }

  Statement set_statement(int depth) {
    Statement out{.kind = Statement::kSet};
    out.targets = targets();
    if (in_.take(".")) {
      if (out.targets.size() != 1) in_.refuse("set of several attributes");
      out.text = in_.expect(Token::kName, "the name of an attribute").text;
    }
    if (in_.take("=")) {
      out.expression = expressions_.tuple();
      in_.expect(Token::kBlockEnd, "%}");
      return out;
    }
    if (in_.is("|")) in_.refuse_unsupported("a filter on a set block");
    in_.expect(Token::kBlockEnd, "%}");
    if (!out.text.empty() || out.targets.size() != 1) in_.refuse("a set block sets one name");
    out.kind = Statement::kSetBlock;
    out.body = closed_body("endset", depth);
    return out;
  }

  Statement macro_statement(int depth) {
    Statement out{.kind = Statement::kMacro, .text = in_.expect(Token::kName, "the name of a macro").text};
    if (!in_.take("(")) in_.refuse("\"(\" is expected after the name of a macro");
    while (!in_.take(")")) {
      std::string parameter = in_.expect(Token::kName, "a parameter").text;
      ExpressionPtr value;
      if (in_.take("=")) value = expressions_.one();
      out.parameters.emplace_back(std::move(parameter), std::move(value));
      if (!in_.is(")") && !in_.take(",")) in_.refuse("\",\" or \")\" is expected in the parameters of a macro");
    }
    in_.expect(Token::kBlockEnd, "%}");
    const int loops = std::exchange(loops_, 0);
    out.body = closed_body("endmacro", depth);
    loops_ = loops;
    return out;
  }

  TokenReader in_;
  ExpressionParser expressions_;
  bool marks_generation_ = false;
  int loops_ = 0;
};

}  // namespace

Program parse(std::vector<Token> tokens, const std::string& name) { return Parser(std::move(tokens), name).run(); }

}  // namespace intarsia::formats::chat
