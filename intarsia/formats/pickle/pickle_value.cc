#include <array>

#include "intarsia/base/error.h"
#include "intarsia/formats/pickle/pickle.h"

namespace intarsia::formats {

PickleKind PickleValue::kind() const { return pickle_->nodes_[node_].kind; }

std::optional<std::int64_t> PickleValue::integer() const {
  if (kind() != PickleKind::kInteger && kind() != PickleKind::kBool) return std::nullopt;
  return pickle_->nodes_[node_].integer;
}

std::optional<double> PickleValue::number() const {
  if (kind() == PickleKind::kFloat) return pickle_->nodes_[node_].number;
  const auto whole = integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<std::string_view> PickleValue::text() const {
  if (kind() != PickleKind::kText && kind() != PickleKind::kBytes && kind() != PickleKind::kClass) return std::nullopt;
  return pickle_->nodes_[node_].text;
}

std::size_t PickleValue::size() const { return pickle_->nodes_[node_].items.size(); }

PickleValue PickleValue::operator[](std::size_t i) const {
  INTARSIA_INVARIANT(i < size(), "item ", i, " of ", size());
  return {*pickle_, pickle_->nodes_[node_].items[i]};
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  if (kind() != PickleKind::kDict) return std::nullopt;
  // The last one counts, as in Python.
  for (std::size_t i = size(); i >= 2; i -= 2)
    if ((*this)[i - 2].kind() == PickleKind::kText && (*this)[i - 2].text() == key) return (*this)[i - 1];
  return std::nullopt;
}

std::string_view PickleValue::class_name() const {
  return kind() == PickleKind::kObject ? *(*this)[0].text() : std::string_view();
}

std::optional<PickleValue> PickleValue::state() const {
  if (kind() != PickleKind::kObject || size() < 3) return std::nullopt;
  return (*this)[2];
}

std::string PickleValue::describe() const {
  constexpr std::array kNames = {"None",    "a bool", "an integer", "a float", "a text",    "bytes",         "a list",
                                 "a tuple", "a dict", "a set",      "a class", "an object", "an outer thing"};
  if (kind() == PickleKind::kObject) return concat("an object of ", class_name());
  if (kind() == PickleKind::kClass) return concat("the class ", *text());
  return kNames[static_cast<std::size_t>(kind())];
}

}  // namespace intarsia::formats
