// Filters, tests, methods and functions of chat templates. Internal to formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/formats/chat_template/value.h"

namespace intarsia::formats::chat {

// What one rendering may use: a template is untrusted, and loops over loops are quickly written.
class Budget {
 public:
  // One more statement, expression or item. Errors: kData above 2 million.
  void step() { INTARSIA_CHECK(kData, ++steps_ <= 2'000'000, "more than 2 million steps"); }
  // Memory that was taken for texts, whether it was given back or not. Errors: kData above 512 MiB in all.
  void made(std::size_t bytes) {
    INTARSIA_CHECK(kData, (bytes_ += bytes) <= (std::size_t{512} << 20),
                   "more than 512 MiB of text put together, piece by piece");
  }
  Value text(std::string text) {
    made(text.size() + 64);
    return Value(std::move(text));
  }

 private:
  std::size_t steps_ = 0, bytes_ = 0;
};

// Arguments by the names of the parameters, wherever they stood.
class Bound {
 public:
  // Errors: kData for too many arguments and for names that are no parameter.
  Bound(const std::string& function, const Arguments& arguments, std::vector<std::string> parameters);
  // nullptr where it was not given.
  const Value* get(std::size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  // Errors: kData where it was not given or is of another type.
  const Value& need(std::size_t i) const;
  const std::string& text(std::size_t i) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;

 private:
  std::string function_;
  std::vector<std::string> parameters_;
  std::vector<std::optional<Value>> values_;
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// Errors of all below: kData for values that they do not take.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
// The function that `value`.name is, for texts and dicts; none if there is no such method.
std::optional<Value> method_of(const Value& value, const std::string& name, Budget& budget);
// Whether texts or dicts have a method of this name.
bool is_method(std::string_view name);
// range, namespace, dict, raise_exception, strftime_now. They keep `budget`.
Dict functions(Budget& budget);

// The items that a loop over `value` sees: of a list its items, of a dict its keys, of a text its characters, of
// undefined none.
List items_of(const Value& value, Budget& budget);
// Characters of a text, or items. None for other values.
std::optional<std::int64_t> length_of(const Value& value);
bool contains(const Value& container, const Value& item);
// Python's order of numbers and of texts: below, at or above 0.
int compare(const Value& left, const Value& right);
// left OP right of two numbers; OP is + - * / // or %. Integers stay integers but for /.
Value arithmetic(const std::string& symbol, const Value& left, const Value& right);
// value[start:stop:step], as Python cuts; null stands for the default.
Value slice(const Value& value, const Value* start, const Value* stop, const Value* step, Budget& budget);
// Item `index`, from the end where it is negative; undefined outside.
Value item_at(const Value& value, std::int64_t index);

}  // namespace intarsia::formats::chat
