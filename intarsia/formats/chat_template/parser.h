// The tree of a chat template. Internal to formats.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/formats/chat_template/lexer.h"
#include "intarsia/formats/chat_template/value.h"

namespace intarsia::formats::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum Kind {
    kConstant,     // constant
    kName,         // name
    kList,         // items (tuples too)
    kDict,         // key and value in turn
    kAttribute,    // items[0] . name
    kIndex,        // items[0] [ items[1] ]
    kSlice,        // items[0] [ items[1] : items[2] : items[3] ], each of the last three may be null
    kCall,         // items[0] ( items[1..], named )
    kFilter,       // items[0] | name ( items[1..], named )
    kTest,         // items[0] is name ( items[1..] )
    kUnary,        // name items[0]; name is -, + or not
    kBinary,       // items[0] name items[1]; arithmetic and ~
    kCompare,      // items[0] operators[0] items[1] operators[1] items[2] ...
    kAnd,          // items[0], items[1]
    kOr,           // items[0], items[1]
    kConditional,  // items[0] if items[1] else items[2], which may be null
  };
  Kind kind = kConstant;
  int line = 1;
  Value constant{};
  std::string name{};
  std::vector<ExpressionPtr> items{};
  std::vector<std::pair<std::string, ExpressionPtr>> named{};
  std::vector<std::string> operators{};
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum Kind {
    kText,        // text
    kPrint,       // expression
    kIf,          // expression, body, otherwise
    kFor,         // targets in expression if condition: body, otherwise
    kSet,         // targets (or targets[0].text) = expression
    kSetBlock,    // targets[0] = what body prints
    kMacro,       // text(parameters): body
    kGeneration,  // body
    kBreak,
    kContinue,
  };
  Kind kind = kText;
  int line = 1;
  std::string text{};
  std::vector<std::string> targets{};
  ExpressionPtr expression{}, condition{};
  std::vector<std::pair<std::string, ExpressionPtr>> parameters{};  // the default may be null
  Body body{}, otherwise{};
};

struct Program {
  Body body;
  bool marks_generation = false;  // has {% generation %}
};

// What nests deeper than this is refused, so that no walk of the tree overflows the stack.
inline constexpr int kMaxTreeDepth = 100;

// Errors, each with `name` and line: kFormat for what is no template; kUnsupported, by name, for statements, filters
// and tests that are not built. Source: Jinja documentation, "Template Designer Documentation".
Program parse(std::vector<Token> tokens, const std::string& name);

}  // namespace intarsia::formats::chat
