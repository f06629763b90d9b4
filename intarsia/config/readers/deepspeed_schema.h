// The keys of a DeepSpeed JSON, as data: type, range, default, and what Intarsia does with each.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::config {

enum class KeyType { kBool, kInteger, kNumber, kNumbers, kText, kChoice, kStage, kAnything };

enum class KeyEffect {
  kHonoured,  // changes what a run does, as in DeepSpeed
  kNoEffect,  // tunes DeepSpeed's mechanism: accepted, checked, shown, reported once with `reason`
  kRefused,   // changes results: a value other than the default is refused by train, with `reason`
  kLater,     // a feature that is known but not built: reported, refused by train
  kRemoved,   // DeepSpeed itself removed it: always an error
};

struct KeySpec {
  std::string path;  // "zero_optimization.stage"
  KeyType type = KeyType::kBool;
  std::string fallback;  // DeepSpeed 0.19's default as JSON text; empty: none
  KeyEffect effect = KeyEffect::kHonoured;
  std::string reason;
  double min = -std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  std::vector<std::string> choices = {};
  double max = std::numeric_limits<double>::infinity();
};

// All known keys. Keys inside optimizer.params and scheduler.params depend on the type: see the next two.
const std::vector<KeySpec>& deepspeed_keys();

// The key with this path (a key of kind kAnything covers everything below it too), or nullptr.
const KeySpec* find_deepspeed_key(std::string_view path);

// Whether `path` is an object on the way to known keys, for example "zero_optimization".
bool is_deepspeed_section(std::string_view path);

// A type that optimizer.type or scheduler.type may name, spelled as DeepSpeed does (Adafactor: as torch does, whose
// optimizers DeepSpeed takes too).
struct TypeSpec {
  std::string name;
  std::string algorithm;        // of optimizers
  std::vector<KeySpec> params;  // paths relative to `params`

  const KeySpec* find(std::string_view param) const;  // nullptr: not a parameter of this type
  bool has(std::string_view param) const { return find(param) != nullptr; }
};
const std::vector<TypeSpec>& deepspeed_optimizers();
const std::vector<TypeSpec>& deepspeed_schedulers();
// Case does not matter for optimizers, as in DeepSpeed. nullptr: unknown.
const TypeSpec* find_optimizer(std::string_view name);
const TypeSpec* find_scheduler(std::string_view name);

// Another spelling of a known key.
struct KeyAlias {
  std::string from, to;
  std::string note;  // reported when the alias is used; empty: in silence
};
const std::vector<KeyAlias>& deepspeed_aliases();

// The remark for a key that is a frequent mistake: what to write instead.
struct KeyHint {
  std::string path, suggestion, message;
};
const KeyHint* find_key_hint(std::string_view path);

// Names that look like configuration but belong to another kind of file (Hugging Face's fsdp_config).
const std::vector<std::string>& fsdp_config_keys();

}  // namespace intarsia::config
