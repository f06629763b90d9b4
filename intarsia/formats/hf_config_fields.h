// Typed access to the keys of one JSON object that collects every problem, so that a user sees all of them at once.
// Internal to formats.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::formats {

struct Problem {
  ErrorKind kind;
  std::string text;
};

// Reads keys and remembers which were asked for. null counts as absent, as in transformers.
class Fields {
 public:
  // `prefix` stands before each key in messages ("rope_scaling."). The object and the list outlive this.
  Fields(const nlohmann::json& object, std::string prefix, std::vector<Problem>* problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  // The value, or null when the key is absent or null.
  const nlohmann::json* get(const std::string& key);

  // True for a key that is there, also when it is null.
  bool has(const std::string& key) const { return object_.contains(key); }

  // Integers lie in [low, 2^31 - 1], so that products of two fit in 64 bits. A float that is integral counts.
  std::optional<std::int64_t> integer(const std::string& key, std::int64_t low);
  std::optional<double> positive(const std::string& key);
  std::optional<double> fraction(const std::string& key);  // in [0, 1)
  std::optional<bool> boolean(const std::string& key);
  std::optional<std::string> text(const std::string& key);

  void bad_value(const std::string& key, const nlohmann::json& value, const std::string& allowed);
  void unsupported(const std::string& key, const nlohmann::json& value, const std::string& allowed);
  void missing(const std::string& key);
  // A size that must be there, at least 1.
  void need(const std::string& key, std::int64_t* out);
  // A switch that must be false or absent.
  void must_be_off(const std::string& key);
  // A key whose only accepted value is `allowed`.
  void must_be(const std::string& key, const nlohmann::json& allowed);

  // Marks as seen a key that changes nothing.
  void ignore(const std::string& key) { seen_.insert(key); }
  // The keys that nobody asked for, except null ones.
  std::vector<std::string> unseen() const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::vector<Problem>* problems_;
  std::set<std::string> seen_;
};

}  // namespace intarsia::formats
