// The one table of run flags: command-line options of train, plan and config show, and the keys of the "intarsia"
// section, are both made from it. cli/run_arguments.h registers it with the command-line parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace intarsia::config {

// kWordOrInteger: one of the choices, or a whole number.
enum class FlagType { kSwitch, kInteger, kNumber, kText, kTexts, kNumbers, kOnOff, kJson, kWordOrInteger };

struct FlagSpec {
  std::string name;                  // "--batch-size"
  std::vector<std::string> aliases;  // Hugging Face's spellings: "--per_device_train_batch_size"
  std::string key;                   // of the "intarsia" section: "batch_size"
  std::string deepspeed;             // path of the DeepSpeed key that means the same, or empty
  FlagType type = FlagType::kText;
  std::vector<std::string> choices;  // allowed words; empty: any
  double min = 0;                    // of numbers
  std::string default_text;          // as shown by --help and config show; may be empty
  std::string help;                  // what it does and its unit
};

// All run flags, in the order of --help.
const std::vector<FlagSpec>& run_flags();

// The flag called `name` (with its dashes, aliases count), or nullptr.
const FlagSpec* find_flag(std::string_view name);

// The flag with the key `key` of the "intarsia" section, or nullptr.
const FlagSpec* find_flag_by_key(std::string_view key);

// A flag as typed.
struct FlagValue {
  const FlagSpec* spec = nullptr;
  std::string written;              // the spelling that was used
  std::vector<std::string> values;  // a switch has none or one of on, off
};

}  // namespace intarsia::config
