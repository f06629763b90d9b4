#include "intarsia/formats/chat_template/evaluator.h"

#include <algorithm>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats::chat {
namespace {

constexpr std::size_t kMaxOutput = std::size_t{256} << 20;
constexpr int kMaxMacros = 20;

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto size = static_cast<std::int64_t>(loop.items->size()), at = static_cast<std::int64_t>(loop.index0);
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(size - at);
  if (name == "revindex0") return Value(size - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == size);
  if (name == "length") return Value(size);
  if (name == "previtem") return at == 0 ? Value() : (*loop.items)[loop.index0 - 1];
  if (name == "nextitem") return at + 1 == size ? Value() : (*loop.items)[loop.index0 + 1];
  fail(ErrorKind::kUnsupported, "loop.", printable(name), " is not supported");
}

void check_defined(const Value& value) {
  const auto* undefined = value.get_if<Undefined>();
  INTARSIA_CHECK(kData, undefined == nullptr, "\"", printable(undefined == nullptr ? "" : undefined->name),
                 "\" is not defined");
}

}  // namespace

Evaluator::Evaluator(const Program& program, Dict variables, const std::string& name)
    : program_(program), name_(name), scopes_(1) {
  for (auto& [key, value] : functions(budget_)) scopes_[0].insert_or_assign(key, std::move(value));
  for (auto& [key, value] : variables) scopes_[0].insert_or_assign(key, std::move(value));
}

std::string Evaluator::run() {
  try {
    run(program_.body);
  } catch (const Error& error) {
    fail(error.kind(), name_, ", line ", line_, ": ", error.what());
  }
  return std::move(out_);
}

Evaluator::Flow Evaluator::run(const Body& body) {
  for (const Statement& statement : body) {
    line_ = statement.line;
    budget_.step();
    if (const Flow flow = run(statement); flow != Flow::kGoOn) return flow;
  }
  return Flow::kGoOn;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  switch (statement.kind) {
    case Statement::kText:
      print(statement.text);
      break;
    case Statement::kPrint:
      print(value_of(*statement.expression).str());
      break;
    case Statement::kIf:
      return run(value_of(*statement.expression).truth() ? statement.body : statement.otherwise);
    case Statement::kFor:
      return run_for(statement);
    case Statement::kSet:
      assign(statement, value_of(*statement.expression));
      break;
    case Statement::kSetBlock:
      assign(statement, budget_.text(capture(statement.body)));
      break;
    case Statement::kMacro:
      scopes_.back().insert_or_assign(
          statement.text,
          Value(std::make_shared<const Callable>(
              Callable{statement.text, [this, &statement](const Arguments& a) { return call_macro(statement, a); }})));
      break;
    case Statement::kGeneration: {
      const std::size_t begin = out_.size();
      INTARSIA_CHECK(kUnsupported, captures_ == 0, "{% generation %} inside a macro or a set block is not supported");
      const Flow flow = run(statement.body);
      if (out_.size() > begin) generated_.emplace_back(begin, out_.size());
      return flow;
    }
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  return Flow::kGoOn;
}

Evaluator::Flow Evaluator::run_for(const Statement& statement) {
  List items = items_of(value_of(*statement.expression), budget_);
  if (statement.condition) {
    List kept;
    for (Value& item : items) {
      budget_.step();
      scopes_.emplace_back();
      bind(statement.targets, item);
      if (value_of(*statement.condition).truth()) kept.push_back(std::move(item));
      scopes_.pop_back();
    }
    items = std::move(kept);
  }
  if (items.empty()) return run(statement.otherwise);
  const auto shared = std::make_shared<const List>(std::move(items));
  for (std::size_t i = 0; i < shared->size(); ++i) {
    budget_.step();
    scopes_.emplace_back();
    scopes_.back().emplace("loop", Value(std::make_shared<const Loop>(Loop{shared, i})));
    bind(statement.targets, (*shared)[i]);
    const Flow flow = run(statement.body);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kGoOn;
}

void Evaluator::print(std::string_view text) {
  INTARSIA_CHECK(kData, out_.size() + text.size() <= kMaxOutput, "the text grows beyond ",
                 format_bytes(static_cast<std::int64_t>(kMaxOutput)));
  out_ += text;
}

std::string Evaluator::capture(const Body& body) {
  std::string outer = std::exchange(out_, {});
  ++captures_;
  run(body);
  --captures_;
  return std::exchange(out_, std::move(outer));
}

void Evaluator::bind(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    scopes_.back().insert_or_assign(targets[0], value);
    return;
  }
  const List* items = value.list();
  INTARSIA_CHECK(kData, items != nullptr && items->size() == targets.size(), targets.size(),
                 " names, but the value is ", items == nullptr ? value.type_name() : "a list of another length");
  for (std::size_t i = 0; i < targets.size(); ++i) scopes_.back().insert_or_assign(targets[i], (*items)[i]);
}

void Evaluator::assign(const Statement& statement, Value value) {
  if (statement.text.empty()) return bind(statement.targets, value);
  Expression name;
  name.name = statement.targets[0];
  Namespace* space = value_of_name(name).space();
  INTARSIA_CHECK(kData, space != nullptr, "set ", printable(name.name), ".", printable(statement.text),
                 ": only a namespace can be changed");
  INTARSIA_CHECK(kUnsupported, value.space() == nullptr && value.loop() == nullptr && value.callable() == nullptr, "a ",
                 value.type_name(), " inside a namespace is not supported");
  for (auto& [key, old] : space->items) {
    if (key != statement.text) continue;
    old = std::move(value);
    return;
  }
  space->items.emplace_back(statement.text, std::move(value));
}

Value Evaluator::call_macro(const Statement& macro, const Arguments& arguments) {
  INTARSIA_CHECK(kData, ++macros_ <= kMaxMacros, "macros call each other more than ", kMaxMacros, " deep");
  std::vector<std::string> names;
  for (const auto& [name, unused] : macro.parameters) names.push_back(name);
  const Bound bound(macro.text, arguments, names);
  // A macro sees what the template sets at its top, and its own parameters.
  std::vector<Scope> outer = std::exchange(scopes_, {});
  scopes_.push_back(std::move(outer.front()));
  scopes_.emplace_back();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ExpressionPtr& otherwise = macro.parameters[i].second;
    Value value = bound.get(i) != nullptr ? *bound.get(i)
                  : otherwise             ? value_of(*otherwise)
                                          : Value(Undefined{names[i]});
    scopes_.back().insert_or_assign(names[i], std::move(value));
  }
  const int line = line_;
  Value out = budget_.text(capture(macro.body));
  line_ = line;
  outer.front() = std::move(scopes_.front());
  scopes_ = std::move(outer);
  --macros_;
  return out;
}

Value Evaluator::value_of(const Expression& e) {
  line_ = e.line;
  budget_.step();
  switch (e.kind) {
    case Expression::kConstant:
      return e.constant;
    case Expression::kName:
      return value_of_name(e);
    case Expression::kList: {
      List items;
      for (const ExpressionPtr& item : e.items) items.push_back(value_of(*item));
      return Value(std::move(items));
    }
    case Expression::kDict: {
      Dict items;
      for (std::size_t i = 0; i < e.items.size(); i += 2) {
        const Value key = value_of(*e.items[i]);
        INTARSIA_CHECK(kUnsupported, key.text() != nullptr, "a dict with a key of type ", key.type_name(),
                       " is not supported");
        items.emplace_back(*key.text(), value_of(*e.items[i + 1]));
      }
      return Value(std::move(items));
    }
    case Expression::kAttribute:
      return attribute(value_of(*e.items[0]), e.name);
    case Expression::kIndex: {
      const Value value = value_of(*e.items[0]);
      return index(value, value_of(*e.items[1]));
    }
    case Expression::kSlice: {
      const Value value = value_of(*e.items[0]);
      Value parts[3];
      const Value* given[3] = {};
      for (std::size_t i = 0; i < 3; ++i) {
        if (!e.items[i + 1]) continue;
        parts[i] = value_of(*e.items[i + 1]);
        given[i] = &parts[i];
      }
      return slice(value, given[0], given[1], given[2], budget_);
    }
    case Expression::kCall:
      return call(e);
    case Expression::kFilter: {
      const Value value = value_of(*e.items[0]);
      return apply_filter(e.name, value, arguments_of(e), budget_);
    }
    case Expression::kTest: {
      const Value value = value_of(*e.items[0]);
      return Value(apply_test(e.name, value, arguments_of(e)));
    }
    case Expression::kUnary: {
      const Value value = value_of(*e.items[0]);
      if (e.name == "not") return Value(!value.truth());
      check_defined(value);
      INTARSIA_CHECK(kData, value.number(), "the sign ", e.name, " before a value of type ", value.type_name());
      return e.name == "+" ? value : arithmetic("-", Value(std::int64_t{0}), value);
    }
    case Expression::kBinary:
      return binary(e);
    case Expression::kCompare:
      return Value(compare_all(e));
    case Expression::kAnd: {
      const Value left = value_of(*e.items[0]);
      return left.truth() ? value_of(*e.items[1]) : left;
    }
    case Expression::kOr: {
      const Value left = value_of(*e.items[0]);
      return left.truth() ? left : value_of(*e.items[1]);
    }
    case Expression::kConditional:
      if (value_of(*e.items[1]).truth()) return value_of(*e.items[0]);
      return e.items[2] ? value_of(*e.items[2]) : Value(Undefined{"an if without else"});
  }
  INTARSIA_INVARIANT(false, "unknown expression");
}

Value Evaluator::value_of_name(const Expression& e) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(e.name);
    if (found != scope->end()) return found->second;
  }
  return Value(Undefined{e.name});
}

Value Evaluator::attribute(const Value& value, const std::string& name) {
  check_defined(value);
  if (const auto method = method_of(value, name, budget_)) return *method;
  if (const Loop* loop = value.loop()) return loop_attribute(*loop, name);
  const Dict* items = value.space() != nullptr ? &value.space()->items : value.dict();
  const Value* found = items == nullptr ? nullptr : find(*items, name);
  return found == nullptr ? Value(Undefined{name}) : *found;
}

Value Evaluator::index(const Value& value, const Value& at) {
  check_defined(value);
  if (const std::string* key = at.text()) {
    const Dict* items = value.space() != nullptr ? &value.space()->items : value.dict();
    if (const Value* found = items == nullptr ? nullptr : find(*items, *key)) return *found;
    return attribute(value, *key);
  }
  const auto number = at.integer();
  if (!number) return Value(Undefined{"an index of another type"});
  return item_at(value, *number);
}

Value Evaluator::binary(const Expression& e) {
  const Value left = value_of(*e.items[0]), right = value_of(*e.items[1]);
  line_ = e.line;
  if (e.name == "~") return budget_.text(left.str() + right.str());
  check_defined(left);
  check_defined(right);
  if (left.number() && right.number()) return arithmetic(e.name, left, right);
  if (e.name == "+" && left.text() != nullptr && right.text() != nullptr)
    return budget_.text(*left.text() + *right.text());
  if (e.name == "+" && left.list() != nullptr && right.list() != nullptr) {
    List items = *left.list();
    items.insert(items.end(), right.list()->begin(), right.list()->end());
    budget_.made(items.size() * sizeof(Value));
    return Value(std::move(items));
  }
  if (e.name == "*" && left.text() != nullptr && right.integer()) {
    std::string out;
    for (std::int64_t i = 0; i < *right.integer(); ++i) {
      budget_.made(left.text()->size() + 1);
      out += *left.text();
    }
    return Value(std::move(out));
  }
  fail(ErrorKind::kData, "the operator ", e.name, " between ", left.type_name(), " and ", right.type_name(),
       " is not supported");
}

bool Evaluator::compare_all(const Expression& e) {
  Value left = value_of(*e.items[0]);
  for (std::size_t i = 0; i < e.operators.size(); ++i) {
    Value right = value_of(*e.items[i + 1]);
    const std::string& symbol = e.operators[i];
    bool holds = false;
    if (symbol == "==" || symbol == "!=") {
      holds = (left == right) == (symbol == "==");
    } else if (symbol == "in" || symbol == "not in") {
      holds = contains(right, left) == (symbol == "in");
    } else {
      check_defined(left);
      check_defined(right);
      const int order = compare(left, right);
      holds = symbol == "<" ? order < 0 : symbol == "<=" ? order <= 0 : symbol == ">" ? order > 0 : order >= 0;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::call(const Expression& e) {
  const Expression& called = *e.items[0];
  Value function;
  if (called.kind == Expression::kAttribute) {
    const Value value = value_of(*called.items[0]);
    function = attribute(value, called.name);
    // The same call may work on another conversation.
    INTARSIA_CHECK(kData, function.callable() != nullptr || !is_method(called.name), "a ", value.type_name(),
                   " has no function ", called.name);
  } else {
    function = value_of(called);
  }
  INTARSIA_CHECK(kUnsupported, function.callable() != nullptr, "there is no function ",
                 called.name.empty() ? "of this form" : printable(called.name));
  const Arguments arguments = arguments_of(e);
  line_ = e.line;
  return function.callable()->call(arguments);
}

Arguments Evaluator::arguments_of(const Expression& e) {
  Arguments out;
  for (std::size_t i = 1; i < e.items.size(); ++i) out.positional.push_back(value_of(*e.items[i]));
  for (const auto& [name, value] : e.named) out.named.emplace_back(name, value_of(*value));
  return out;
}

}  // namespace intarsia::formats::chat
