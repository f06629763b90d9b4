// How a program names its configuration.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace intarsia::api {

// A DeepSpeed JSON: a file's path, or the text itself.
class Config {
 public:
  Config(std::string path) : path_(std::move(path)) {}  // NOLINT(google-explicit-constructor): a path is a config
  Config(const char* path) : path_(path) {}             // NOLINT(google-explicit-constructor)
  // `json` is the configuration, for example the dump() of a parsed object.
  static Config from_text(std::string json) {
    Config config("the configuration");
    config.text_ = std::move(json);
    return config;
  }
  // Overrides a key, as --set PATH=VALUE does: set("optimizer.params.lr", "1e-3").
  Config& set(const std::string& path, const std::string& value) {
    sets_.push_back(path + "=" + value);
    return *this;
  }

  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }  // empty: `path` is to be read
  const std::vector<std::string>& sets() const { return sets_; }

 private:
  std::string path_, text_;
  std::vector<std::string> sets_;
};

}  // namespace intarsia::api
