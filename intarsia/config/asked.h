// What is asked for outside DeepSpeed's own keys: flags, the "intarsia" section, trainer arguments. All three end in
// one map under the flag's key, checked against the one table of flags. Internal to config/.
#pragma once

#include "intarsia/config/draft.h"

namespace intarsia::config {

// Reads the "intarsia" section of the file.
void read_intarsia_section(const formats::JsonMember& section, Draft& draft);

// Reads a JSON file of Hugging Face TrainingArguments.
void read_trainer_arguments(Draft& draft);

// Adds the flags of the command line.
void read_flags(Draft& draft);

// Adds one setting after checking it; a different value that is there already is a problem that shows both.
void ask(const FlagSpec& spec, Asked value, Draft& draft);

}  // namespace intarsia::config
