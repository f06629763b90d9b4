// What the expressions of a chat template compute with: Python's values, as far as Jinja shows them. Internal to
// formats.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace intarsia::formats::chat {

class Value;
using List = std::vector<Value>;
// In the order of insertion, as Python's dict; keys are strings.
using Dict = std::vector<std::pair<std::string, Value>>;

// A name that stands for nothing: prints as nothing, counts as false, and fails where a value is needed.
struct Undefined {
  std::string name;
};
struct None {};
// The result of namespace(): the one thing that {% set NAME.KEY = ... %} changes.
struct Namespace {
  Dict items;
};
// `loop` inside {% for %}.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index0 = 0;
};
struct Arguments {
  List positional;
  Dict named;
};
struct Callable {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

// Copies are cheap: containers and texts are shared and do not change. Lists and dicts nest at most kMaxNesting deep
// and hold neither namespaces nor callables, so no value contains itself and every walk ends.
class Value {
 public:
  static constexpr int kMaxNesting = 200;

  Value() : data_(Undefined{}) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(None) : data_(None{}) {}
  explicit Value(bool b) : data_(b) {}
  explicit Value(std::int64_t i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  // Errors: kData for items nested too deeply or that no container may hold.
  explicit Value(List items);
  explicit Value(Dict items);
  explicit Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  explicit Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  explicit Value(std::shared_ptr<const Callable> function) : data_(std::move(function)) {}
  // Errors: kData for integers beyond 64 bits and for nesting.
  static Value of(const nlohmann::ordered_json& json);

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get_if<Undefined>() != nullptr; }
  bool is_none() const { return get_if<None>() != nullptr; }
  const std::string* text() const { return pointee<std::string>(); }
  const List* list() const { return pointee<List>(); }
  const Dict* dict() const { return pointee<Dict>(); }
  std::shared_ptr<const List> shared_list() const { return *get_if<std::shared_ptr<const List>>(); }
  const Loop* loop() const { return pointee<Loop>(); }
  const Callable* callable() const { return pointee<Callable>(); }
  Namespace* space() const;
  // An integer or a truth value as an integer.
  std::optional<std::int64_t> integer() const;
  // Any number.
  std::optional<double> number() const;

  bool truth() const;
  // str(): a text as it is, other values as Python prints them.
  std::string str() const;
  // repr(): texts in quotes.
  std::string repr() const;
  // "str", "list", "undefined", ...: for messages.
  const char* type_name() const;

  bool operator==(const Value& other) const;

 private:
  template <typename T>
  const T* pointee() const {
    const auto* shared = std::get_if<std::shared_ptr<const T>>(&data_);
    return shared == nullptr ? nullptr : shared->get();
  }
  void check_item(const Value& item);

  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Loop>, std::shared_ptr<const Callable>>
      data_;
  int nesting_ = 0;
};

// The entry of `key`, or nullptr.
const Value* find(const Dict& dict, std::string_view key);

// json.dumps(value, ensure_ascii=False, indent=indent), what the filter tojson gives in Hugging Face's environment.
// Errors: kData for what is no JSON.
std::string to_json(const Value& value, std::optional<std::int64_t> indent);

// "1.0", "1e-07": as Python prints a float.
std::string python_float(double value);

}  // namespace intarsia::formats::chat
