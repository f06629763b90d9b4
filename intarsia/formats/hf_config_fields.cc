#include "intarsia/formats/hf_config_fields.h"

#include <cmath>
#include <limits>

#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::json;

std::string value_text(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

const Json* Fields::get(const std::string& key) {
  seen_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> Fields::integer(const std::string& key, std::int64_t low) {
  const Json* value = get(key);
  if (value == nullptr) return std::nullopt;
  constexpr double kHigh = std::numeric_limits<std::int32_t>::max();
  // Every allowed integer is exact as a double, and a huge one is out of range either way.
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= static_cast<double>(low) && number <= kHigh && number == std::floor(number))) {
    bad_value(key, *value, concat("an integer from ", low, " to 2147483647"));
    return std::nullopt;
  }
  return static_cast<std::int64_t>(number);
}

std::optional<double> Fields::positive(const std::string& key) {
  const Json* value = get(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number > 0 && std::isfinite(number))) {
    bad_value(key, *value, "a number above 0");
    return std::nullopt;
  }
  return number;
}

std::optional<double> Fields::fraction(const std::string& key) {
  const Json* value = get(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= 0 && number < 1)) {
    bad_value(key, *value, "a number from 0 to below 1");
    return std::nullopt;
  }
  return number;
}

std::optional<bool> Fields::boolean(const std::string& key) {
  const Json* value = get(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    bad_value(key, *value, "true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const std::string& key) {
  const Json* value = get(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    bad_value(key, *value, "a text");
    return std::nullopt;
  }
  return value->get<std::string>();
}

void Fields::bad_value(const std::string& key, const Json& value, const std::string& allowed) {
  problems_->push_back(
      {ErrorKind::kFormat, concat("\"", prefix_, printable(key), "\" is ", value_text(value), ", must be ", allowed)});
}

void Fields::unsupported(const std::string& key, const Json& value, const std::string& allowed) {
  problems_->push_back({ErrorKind::kUnsupported, concat("\"", prefix_, printable(key), "\": ", value_text(value),
                                                        " is not supported; ", allowed)});
}

void Fields::missing(const std::string& key) {
  problems_->push_back({ErrorKind::kFormat, concat("\"", prefix_, key, "\" is missing")});
}

void Fields::need(const std::string& key, std::int64_t* out) {
  if (const auto value = integer(key, 1))
    *out = *value;
  else if (get(key) == nullptr)
    missing(key);
}

void Fields::must_be_off(const std::string& key) {
  if (boolean(key).value_or(false)) unsupported(key, true, "only false is");
}

void Fields::must_be(const std::string& key, const Json& allowed) {
  if (const Json* value = get(key); value != nullptr && *value != allowed)
    unsupported(key, *value, concat("only ", value_text(allowed), " is"));
}

std::vector<std::string> Fields::unseen() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (!seen_.contains(key) && !value.is_null()) keys.push_back(key);
  return keys;
}

}  // namespace intarsia::formats
