// Checked access to the JSON of one tokenizer.json; every message begins with the file's name. Internal to formats.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_spec.h"

namespace intarsia::formats {

class TokenizerJson {
 public:
  using json = nlohmann::json;

  explicit TokenizerJson(const std::string& file) : file_(file) {}

  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    if (!holds) fail(ErrorKind::kFormat, file_, ": ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kUnsupported, file_, ": this tokenizer needs ", parts..., ", which is not supported");
  }

  static std::string shown(const json& value) {
    return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  json parse(std::string_view text) const {
    // Deep nesting would overflow the stack of whatever walks the value later.
    const auto shallow = [&](int depth, json::parse_event_t, json&) {
      require(depth <= 16, "lists and objects are nested more than 16 deep");
      return true;
    };
    try {
      return json::parse(text, shallow);
    } catch (const json::exception& error) {
      fail(ErrorKind::kFormat, file_, ": not valid JSON: ", printable(error.what()));
    }
  }

  void check_keys(const json& object, std::string_view where, std::initializer_list<std::string_view> known) const {
    require(object.is_object(), where, " must be an object, found ", object.type_name());
    for (const auto& [key, value] : object.items()) {
      bool found = false;
      for (const std::string_view k : known) found = found || key == k;
      if (!found) refuse("key \"", printable(key), "\" of ", where);
    }
  }

  static const json& optional(const json& object, const char* key) {
    static const json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  bool boolean(const json& object, const char* key, bool otherwise, std::string_view where) const {
    const json& value = optional(object, key);
    if (value.is_null()) return otherwise;
    require(value.is_boolean(), where, ": \"", key, "\" must be true or false, found ", shown(value));
    return value.get<bool>();
  }

  const std::string& string(const json& value, std::string_view where) const {
    require(value.is_string(), where, " must be a string, found ", value.type_name());
    return value.get_ref<const std::string&>();
  }

  std::string type_of(const json& part, std::string_view where) const {
    require(part.is_object(), where, " must be an object, found ", part.type_name());
    return string(optional(part, "type"), concat("\"type\" of ", where));
  }

  const json& list(const json& part, const char* key, std::string_view where) const {
    const json& value = optional(part, key);
    require(value.is_array(), where, ": \"", key, "\" must be a list, found ", value.type_name());
    require(value.size() <= 64, where, ": \"", key, "\" has ", value.size(), " entries, allowed are 64");
    return value;
  }

 private:
  const std::string& file_;
};

// Reads the parts that change text before and after the vocabulary: normalizer, pre_tokenizer, post_processor and
// decoder. `spec` has its tokens already. Errors: kFormat, kUnsupported.
void read_tokenizer_steps(const TokenizerJson& file, const nlohmann::json& root, TokenizerSpec& spec);

}  // namespace intarsia::formats
