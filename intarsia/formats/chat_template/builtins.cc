#include "intarsia/formats/chat_template/builtins.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats::chat {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

// Where the characters of a text begin. A text of ASCII, the common one, needs no list.
class Characters {
 public:
  Characters(std::string_view text, Budget& budget) : text_(text), size_(count_characters(text)) {
    if (static_cast<std::size_t>(size_) == text.size()) return;
    budget.made(text.size() * sizeof(std::size_t));
    for (std::size_t at = 0; at < text.size(); ++at)
      if (!is_continuation(text[at])) begins_.push_back(at);
    begins_.push_back(text.size());
  }
  std::int64_t size() const { return size_; }
  std::string_view at(std::size_t i) const {
    return begins_.empty() ? text_.substr(i, 1) : text_.substr(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  std::string_view text_;
  std::int64_t size_;
  std::vector<std::size_t> begins_;
};

Value function(std::string name, std::function<Value(const Arguments&)> call) {
  return Value(std::make_shared<const Callable>(Callable{std::move(name), std::move(call)}));
}

Value range(const Arguments& arguments, Budget& budget) {
  const Bound bound("range", arguments, {"start", "stop", "step"});
  const bool one = bound.get(1) == nullptr;
  const std::int64_t start = one ? 0 : bound.integer(0, 0), stop = bound.integer(one ? 0 : 1, 0);
  const std::int64_t step = bound.integer(2, 1);
  constexpr std::int64_t kLongest = 100'000;  // Jinja's own limit in its sandbox
  INTARSIA_CHECK(kData, step != 0, "range with a step of 0");
  const double count = std::ceil((static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step));
  INTARSIA_CHECK(kData, count <= kLongest, "range of more than ", kLongest, " numbers");
  List items;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(std::max(0.0, count)); ++i) {
    budget.step();
    items.emplace_back(start + i * step);
  }
  return Value(std::move(items));
}

Value time_text(const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"});
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 256> out{};
  const std::size_t size = std::strftime(out.data(), out.size(), bound.text(0).c_str(), &parts);
  return Value(std::string(out.data(), size));
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

// a OP b of two integers; false where it leaves 64 bits.
bool integers(const std::string& symbol, std::int64_t a, std::int64_t b, std::int64_t& out) {
  if (symbol == "+") return !__builtin_add_overflow(a, b, &out);
  if (symbol == "-") return !__builtin_sub_overflow(a, b, &out);
  if (symbol == "*") return !__builtin_mul_overflow(a, b, &out);
  INTARSIA_CHECK(kData, b != 0, "division by zero");
  if (b == -1) return symbol == "//" ? !__builtin_sub_overflow(std::int64_t{0}, a, &out) : (out = 0, true);
  out = symbol == "//" ? floor_div(a, b) : a - floor_div(a, b) * b;
  return true;
}

}  // namespace

Bound::Bound(const std::string& function, const Arguments& arguments, std::vector<std::string> parameters)
    : function_(function), parameters_(std::move(parameters)), values_(parameters_.size()) {
  INTARSIA_CHECK(kData, arguments.positional.size() <= parameters_.size(), function, " takes ", parameters_.size(),
                 " arguments, found ", arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters_.begin(), parameters_.end(), name);
    INTARSIA_CHECK(kData, at != parameters_.end(), function, " has no argument ", printable(name));
    values_[static_cast<std::size_t>(at - parameters_.begin())] = value;
  }
}

const Value& Bound::need(std::size_t i) const {
  INTARSIA_CHECK(kData, values_[i], function_, " needs the argument ", parameters_[i]);
  return *values_[i];
}

const std::string& Bound::text(std::size_t i) const {
  const std::string* text = need(i).text();
  INTARSIA_CHECK(kData, text != nullptr, function_, ": ", parameters_[i], " must be a text, found ",
                 need(i).type_name());
  return *text;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  if (!values_[i] || values_[i]->is_none()) return otherwise;
  const auto value = values_[i]->integer();
  INTARSIA_CHECK(kData, value, function_, ": ", parameters_[i], " must be an integer, found ", values_[i]->type_name());
  return *value;
}

Dict functions(Budget& budget) {
  Dict out;
  out.emplace_back("range", function("range", [&](const Arguments& a) { return range(a, budget); }));
  out.emplace_back("namespace", function("namespace", [](const Arguments& a) {
                     INTARSIA_CHECK(kData, a.positional.empty(), "namespace takes named arguments only");
                     return Value(std::make_shared<Namespace>(Namespace{a.named}));
                   }));
  out.emplace_back("dict", function("dict", [](const Arguments& a) {
                     INTARSIA_CHECK(kData, a.positional.empty(), "dict takes named arguments only");
                     return Value(a.named);
                   }));
  out.emplace_back("raise_exception", function("raise_exception", [](const Arguments& a) -> Value {
                     const Bound bound("raise_exception", a, {"message"});
                     fail(ErrorKind::kData, "the template refuses the conversation: ", printable(bound.need(0).str()));
                   }));
  out.emplace_back("strftime_now", function("strftime_now", time_text));
  return out;
}

List items_of(const Value& value, Budget& budget) {
  List out;
  if (value.is_undefined()) return out;
  if (const List* list = value.list()) return *list;
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, unused] : *dict) out.emplace_back(key);
    return out;
  }
  const std::string* text = value.text();
  INTARSIA_CHECK(kData, text != nullptr, "a loop over a value of type ", value.type_name());
  const Characters characters(*text, budget);
  for (std::int64_t i = 0; i < characters.size(); ++i) {
    budget.step();
    out.push_back(budget.text(std::string(characters.at(static_cast<std::size_t>(i)))));
  }
  return out;
}

std::optional<std::int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const List* list = value.list()) return static_cast<std::int64_t>(list->size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->size());
  if (const std::string* text = value.text()) return count_characters(*text);
  return std::nullopt;
}

bool contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const List* list = container.list()) return std::find(list->begin(), list->end(), item) != list->end();
  const std::string* word = item.text();
  if (const Dict* dict = container.dict()) return word != nullptr && find(*dict, *word) != nullptr;
  const std::string* text = container.text();
  INTARSIA_CHECK(kData, text != nullptr && word != nullptr, "\"in\" of ", item.type_name(), " and ",
                 container.type_name());
  return text->find(*word) != text->npos;
}

int compare(const Value& left, const Value& right) {
  const auto a = left.number(), b = right.number();
  if (a && b) return *a < *b ? -1 : *a > *b ? 1 : 0;
  INTARSIA_CHECK(kData, left.text() != nullptr && right.text() != nullptr, "no order between ", left.type_name(),
                 " and ", right.type_name());
  const int order = left.text()->compare(*right.text());  // of UTF-8 bytes: that of code points
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

Value arithmetic(const std::string& symbol, const Value& left, const Value& right) {
  const auto a = left.integer(), b = right.integer();
  if (a && b && symbol != "/") {
    std::int64_t out = 0;
    INTARSIA_CHECK(kData, integers(symbol, *a, *b, out), *a, " ", symbol, " ", *b, " is beyond 64 bits");
    return Value(out);
  }
  const double x = *left.number(), y = *right.number();
  if (symbol == "+") return Value(x + y);
  if (symbol == "-") return Value(x - y);
  if (symbol == "*") return Value(x * y);
  INTARSIA_CHECK(kData, y != 0, "division by zero");
  if (symbol == "/") return Value(x / y);
  return Value(symbol == "//" ? std::floor(x / y) : x - std::floor(x / y) * y);
}

Value slice(const Value& value, const Value* start, const Value* stop, const Value* step, Budget& budget) {
  const auto number = [](const Value* v, std::int64_t otherwise) {
    if (v == nullptr || v->is_none()) return otherwise;
    const auto integer = v->integer();
    INTARSIA_CHECK(kData, integer, "a slice from or to ", v->type_name());
    return *integer;
  };
  INTARSIA_CHECK(kData, value.list() != nullptr || value.text() != nullptr, "a slice of ", value.type_name());
  const std::int64_t size = *length_of(value), by = number(step, 1);
  INTARSIA_CHECK(kData, by != 0, "a slice with a step of 0");
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto place = [&](const Value* v, std::int64_t otherwise) {
    const std::int64_t given = number(v, otherwise);
    const bool is_given = v != nullptr && !v->is_none();
    return std::clamp(is_given && given < 0 ? given + size : given, low, high);
  };
  const std::int64_t from = place(start, by > 0 ? low : high), to = place(stop, by > 0 ? high : low);
  const std::int64_t stride = std::clamp<std::int64_t>(by, -size - 1, size + 1);
  List items;
  std::string text;
  const Characters characters(value.text() != nullptr ? *value.text() : std::string_view(), budget);
  for (std::int64_t i = from; stride > 0 ? i < to : i > to; i += stride) {
    budget.step();
    const auto at = static_cast<std::size_t>(i);
    if (const List* list = value.list()) {
      items.push_back((*list)[at]);
    } else {
      text += characters.at(at);
    }
  }
  return value.list() != nullptr ? Value(std::move(items)) : budget.text(std::move(text));
}

Value item_at(const Value& value, std::int64_t index) {
  const auto size = length_of(value);
  if (!size || value.dict() != nullptr) return Value();
  if (index < 0) index += *size;
  if (index < 0 || index >= *size) return Value();
  const auto at = static_cast<std::size_t>(index);
  if (const List* list = value.list()) return (*list)[at];
  if (value.text() == nullptr) return Value();
  std::string_view text = *value.text();
  for (std::size_t i = 0; i < at; ++i) text.remove_prefix(utf8_part(text, 0).length);
  return Value(std::string(text.substr(0, utf8_part(text, 0).length)));
}

}  // namespace intarsia::formats::chat
