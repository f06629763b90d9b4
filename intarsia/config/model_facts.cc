#include "intarsia/config/model_facts.h"

#include <algorithm>
#include <filesystem>

#include "intarsia/formats/json.h"

namespace intarsia::config {
namespace {

std::optional<std::int64_t> hidden_size_of(const formats::JsonValue& object) {
  for (const char* key : {"hidden_size", "n_embd", "d_model"}) {
    const formats::JsonMember* member = object.find(key);
    if (member != nullptr && member->value.as_integer()) return member->value.as_integer();
  }
  if (const formats::JsonMember* sizes = object.find("hidden_sizes")) {
    std::int64_t largest = 0;
    for (const formats::JsonValue& item : sizes->value.items)
      largest = std::max(largest, item.as_integer().value_or(0));
    if (largest > 0) return largest;
  }
  const formats::JsonMember* inner = object.find("text_config");
  return inner != nullptr ? hidden_size_of(inner->value) : std::nullopt;
}

}  // namespace

ModelFacts read_model_facts(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  try {
    return {hidden_size_of(formats::read_json_file(path))};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace intarsia::config
