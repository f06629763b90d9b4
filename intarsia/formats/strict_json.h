// JSON that programs write (config.json, index files), read by the letter of the standard. Files that people write go
// through json.h.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace intarsia::formats {

// Parses text whose top level is an object. `path` is for messages.
// Errors: kFormat with path and line for anything that is not JSON, a name that stands twice in one object, or more
// than `max_depth` brackets inside each other.
nlohmann::json parse_strict_json(std::string_view text, const std::string& path, std::size_t max_depth = 32);

}  // namespace intarsia::formats
