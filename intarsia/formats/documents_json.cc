#include "intarsia/formats/documents_json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 100;

json parse(std::string_view line, const std::string& place) {
  // Deep nesting would overflow the stack of whatever walks the value later.
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    INTARSIA_CHECK(kData, depth <= kMaxDepth, place, ": JSON nested more than ", kMaxDepth, " deep");
    return true;
  };
  try {
    return json::parse(line, shallow);
  } catch (const json::exception& error) {
    fail(ErrorKind::kData, place, ": not valid JSON: ", printable(error.what()),
         "; a JSONL file has one whole object on each line");
  }
}

}  // namespace

std::string text_of_json_line(std::string_view line, const std::string& place) {
  json value = parse(line, place);
  INTARSIA_CHECK(kData, value.is_object(), place, ": a line must be an object such as {\"text\": \"...\"}, found ",
                 value.type_name());
  const auto text = value.find("text");
  if (text != value.end()) {
    INTARSIA_CHECK(kData, text->is_string(), place, ": \"text\" must be a string, found ", text->type_name());
    return std::move(text->get_ref<std::string&>());
  }
  for (const char* later : {"messages", "prompt", "completion"}) {
    INTARSIA_CHECK(kUnsupported, !value.contains(later), place, ": has \"", later,
                   "\": prompts and chats are not supported yet; give lines with \"text\"");
  }
  std::vector<std::string> keys;
  for (const auto& [key, unused] : value.items()) {
    if (keys.size() < 8) keys.push_back(printable(key));
  }
  fail(ErrorKind::kData, place, ": no \"text\" on this line; its keys are: ", keys.empty() ? "none" : join(keys));
}

}  // namespace intarsia::formats
