#include "intarsia/formats/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/problem_list.h"
#include "intarsia/formats/strict_json.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::json;

// Keys that change nothing once the adapter is trained, or that the weights' own shapes decide.
constexpr std::array<std::string_view, 12> kWithoutEffect = {
    "auto_mapping", "fan_in_fan_out", "inference_mode", "layers_pattern", "lora_dropout",      "megatron_core",
    "peft_version", "revision",       "task_type",      "target_modules", "qalora_group_size", "peft_type"};

bool is_nothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_object() || value.is_array() || value.is_string()) && value.empty()) || value == "";
}

// Some ways to start change the base's weights too; then the adapter fits only that changed base.
bool starts_from_the_base(const Json& value) { return value.is_boolean() || value == "gaussian"; }

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80));
}

}  // namespace

bool is_adapter_directory(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::exists(fs::path(directory) / kAdapterConfigName, error) &&
         !fs::exists(fs::path(directory) / "config.json", error);
}

AdapterConfig read_adapter_config(const std::string& directory) {
  const std::string path = (std::filesystem::path(directory) / kAdapterConfigName).string();
  const Json json = parse_strict_json(io::read_text_file(path, 1 << 20), path);
  AdapterConfig config;
  ProblemList problems;
  bool rank_stabilised = false;
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const Json& value = item.value();
    const auto expect = [&](bool fits, const char* what) {
      if (!fits) problems.add("\"", printable(key), "\" is ", shown(value), ", ", what);
    };
    if (key == "peft_type") {
      expect(value == "LORA", "only \"LORA\" is read");
    } else if (key == "r") {
      expect(value.is_number_integer() && value.get<std::int64_t>() >= 1, "a whole number of at least 1 is expected");
      if (value.is_number_integer()) config.r = value.get<std::int64_t>();
    } else if (key == "lora_alpha") {
      expect(value.is_number() && std::isfinite(value.get<double>()), "a number is expected");
      if (value.is_number()) config.alpha = value.get<double>();
    } else if (key == "use_rslora") {
      expect(value.is_boolean(), "true or false is expected");
      rank_stabilised = value == true;
    } else if (key == "bias") {
      expect(value == "none", "only \"none\" is read");
    } else if (key == "init_lora_weights") {
      expect(starts_from_the_base(value), "which changes the base too; true, false and \"gaussian\" are read");
    } else if (key == "base_model_name_or_path") {
      if (value.is_string()) config.base_model = value.get<std::string>();
    } else if (std::ranges::find(kWithoutEffect, key) == kWithoutEffect.end()) {
      expect(is_nothing(value), "which is not known or not done; only null, false or nothing is read");
    }
    if (key == "target_modules" && value.is_array())
      for (const Json& target : value)
        if (target.is_string()) config.targets.push_back(target.get<std::string>());
  }
  for (const char* key : {"peft_type", "r", "lora_alpha"})
    if (!json.contains(key)) problems.add("\"", key, "\" is missing");
  problems.throw_if_any(ErrorKind::kUnsupported, printable(path));
  const auto r = static_cast<double>(config.r);
  config.scale = config.alpha / (rank_stabilised ? std::sqrt(r) : r);
  return config;
}

std::string adapter_config_text(const AdapterConfig& config) {
  nlohmann::ordered_json json = {{"alpha_pattern", nlohmann::ordered_json::object()},
                                 {"auto_mapping", nullptr},
                                 {"base_model_name_or_path", nullptr},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", config.transposed},
                                 {"inference_mode", true},
                                 {"init_lora_weights", true},
                                 {"layers_pattern", nullptr},
                                 {"layers_to_transform", nullptr},
                                 {"lora_alpha", config.alpha},
                                 {"lora_dropout", config.dropout},
                                 {"modules_to_save", nullptr},
                                 {"peft_type", "LORA"},
                                 {"r", config.r},
                                 {"rank_pattern", nlohmann::ordered_json::object()},
                                 {"revision", nullptr},
                                 {"target_modules", config.targets},
                                 {"task_type", "CAUSAL_LM"},
                                 {"use_dora", false},
                                 {"use_rslora", false}};
  if (!config.base_model.empty()) json["base_model_name_or_path"] = config.base_model;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace intarsia::formats
