// Runs the tree of a chat template over data. Internal to formats.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/formats/chat_template/builtins.h"
#include "intarsia/formats/chat_template/parser.h"

namespace intarsia::formats::chat {

// One rendering. Nothing outside of `variables` can be reached, nothing is changed.
class Evaluator {
 public:
  // `name` is for messages. Both arguments by reference must outlive the object.
  Evaluator(const Program& program, Dict variables, const std::string& name);

  // Errors: kData with `name` and line, also for what the template itself raises and for limits (Budget).
  std::string run();
  // Bytes [begin, end) of the text that {% generation %} blocks printed.
  const std::vector<std::pair<std::size_t, std::size_t>>& generated() const { return generated_; }

 private:
  enum class Flow { kGoOn, kBreak, kContinue };
  using Scope = std::map<std::string, Value, std::less<>>;

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_for(const Statement& statement);
  void print(std::string_view text);
  std::string capture(const Body& body);
  void assign(const Statement& statement, Value value);
  void bind(const std::vector<std::string>& targets, const Value& value);
  Value call_macro(const Statement& macro, const Arguments& arguments);

  Value value_of(const Expression& e);
  Value value_of_name(const Expression& e) const;
  Value attribute(const Value& value, const std::string& name);
  Value index(const Value& value, const Value& at);
  Value binary(const Expression& e);
  bool compare_all(const Expression& e);
  Value call(const Expression& e);
  Arguments arguments_of(const Expression& e);

  const Program& program_;
  const std::string& name_;
  Budget budget_;
  std::vector<Scope> scopes_;
  std::string out_;
  int captures_ = 0, macros_ = 0;
  int line_ = 1;
  std::vector<std::pair<std::size_t, std::size_t>> generated_;
};

}  // namespace intarsia::formats::chat
