#include "intarsia/formats/strict_json.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {

using Json = nlohmann::json;

Json parse_strict_json(std::string_view text, const std::string& path, std::size_t max_depth) {
  std::vector<std::unordered_set<std::string>> names;  // of each object that is open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto level = static_cast<std::size_t>(std::max(depth, 0));
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    INTARSIA_CHECK(kFormat, !opens || level < max_depth, printable(path), ": nested deeper than ", max_depth,
                   " brackets");
    if (event == Json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      INTARSIA_CHECK(kFormat, names.back().insert(name).second, printable(path), ": \"", printable(name),
                     "\" stands twice in one object");
    }
    return true;
  };
  Json result;
  try {
    result = Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    const std::size_t position = std::min<std::size_t>(error.byte, text.size());
    fail(ErrorKind::kFormat, printable(path), ":",
         1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n'),
         ": not valid JSON at byte ", error.byte);
  } catch (const Json::out_of_range&) {  // the parser's error for a number too large for a double
    fail(ErrorKind::kFormat, printable(path), ": a number is out of range");
  }
  INTARSIA_CHECK(kFormat, result.is_object(), printable(path), ": the top level must be an object");
  return result;
}

}  // namespace intarsia::formats
