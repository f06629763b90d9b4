// Rows of the tables of DeepSpeed's keys, in few words.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {

using E = KeyEffect;
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

inline KeySpec flag(std::string path, const char* fallback, E effect = E::kHonoured, std::string reason = "") {
  return {std::move(path), KeyType::kBool, fallback, effect, std::move(reason)};
}
inline KeySpec integer(std::string path, const char* fallback, double min, E effect = E::kHonoured,
                       std::string reason = "") {
  return {std::move(path), KeyType::kInteger, fallback, effect, std::move(reason), min};
}
inline KeySpec number(std::string path, const char* fallback, double min, E effect = E::kHonoured,
                      std::string reason = "") {
  return {std::move(path), KeyType::kNumber, fallback, effect, std::move(reason), min};
}
inline KeySpec positive(KeySpec spec) {
  spec.above_min = true;
  return spec;
}
inline KeySpec at_most(double max, KeySpec spec) {
  spec.max = max;
  return spec;
}
inline KeySpec text(std::string path, const char* fallback, E effect = E::kHonoured, std::string reason = "") {
  return {std::move(path), KeyType::kText, fallback, effect, std::move(reason)};
}
inline KeySpec choice(std::string path, const char* fallback, std::vector<std::string> choices, E effect = E::kHonoured,
                      std::string reason = "") {
  return {std::move(path), KeyType::kChoice, fallback, effect, std::move(reason), -kNoLimit, false, std::move(choices)};
}
inline KeySpec numbers(std::string path, const char* fallback) {
  return {std::move(path), KeyType::kNumbers, fallback, E::kHonoured, "", 0};
}
inline KeySpec anything(std::string path, E effect, std::string reason) {
  return {std::move(path), KeyType::kAnything, "", effect, std::move(reason)};
}

// The tables, each in a file of its own.
std::vector<KeySpec> make_deepspeed_keys();
std::vector<TypeSpec> make_deepspeed_optimizers();
std::vector<TypeSpec> make_deepspeed_schedulers();

}  // namespace intarsia::config
