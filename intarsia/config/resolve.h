// From a DeepSpeed JSON, flags and trainer arguments to a TrainConfig, with the origin of each value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/config/flags.h"
#include "intarsia/config/train_config.h"

namespace intarsia::config {

// What is known of the model when the configuration is resolved.
struct ModelFacts {
  std::optional<std::int64_t> hidden_size;  // or the largest of hidden_sizes
};

struct ResolveInput {
  std::string file;       // DeepSpeed JSON; empty: none
  std::string text = {};  // what stands in `file`, which is then only its name in messages; empty: it is read
  std::vector<FlagValue> flags;
  std::string trainer_file;       // JSON of Hugging Face TrainingArguments (plus total_steps, hidden_size); empty: none
  std::vector<std::string> sets;  // "path=value": override anything, last one wins
  int ranks = 1;                  // data-parallel ranks
  ModelFacts model;
  // train and plan: what neither file nor flag settles takes its default ("auto" by Hugging Face's defaults). Without
  // it (config show, config check) a file is read for what it says, and an "auto" that nothing settles is a mistake.
  bool for_training = false;
  // Of train and plan: "auto" for the micro-batch or the stage that nothing settles is left open, for
  // plan::settle_open. Without it such a micro-batch is a mistake, such a stage the default.
  bool planner_follows = false;
};

// A mistake in a configuration.
struct Problem {
  std::string path;  // "zero_optimization.stage", or the flag
  std::string file;  // empty: no file
  int line = 0;      // counted from 1; 0: no place
  int column = 0;
  std::string value;       // as found, as JSON text
  std::string message;     // what is wrong and what is allowed
  std::string suggestion;  // what to write instead; may be empty

  std::string text() const;  // one line: "ds.json:8:14: zero_optimization.stage: 4: ..."
};

// Something accepted that the user should know.
struct Report {
  enum class Level { kNote, kWarning };
  Level level = Level::kNote;
  std::string path;
  std::string file;
  int line = 0;
  std::string message;

  std::string text() const;  // "warning: PATH: MESSAGE (FILE:LINE)"
};

struct Resolved {
  TrainConfig config;
  // Each value's origin: "FILE:LINE", "flag --lr", "trainer learning_rate", "auto (...)", "--set", "default".
  std::map<std::string, std::string> origins;
  std::vector<Report> reports;
  std::map<std::string, std::string> values;  // every DeepSpeed key that has a value, as JSON text, "auto" resolved
  std::vector<Problem> refusals;              // what `train` cannot do yet; see check_trainable
};

// kConfig with all problems at once: what() has one line each.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// Reads and checks everything. Precedence: default < file < flag; an "auto" takes the flag's or the trainer's value; a
// flag that contradicts an explicit value of the file is a problem that shows both. Errors: ConfigError; kIo when a
// file cannot be read.
Resolved resolve(const ResolveInput& input);

// The part of a configuration that is well formed and known but that training cannot honour yet (fp16, offload, other
// optimizers, ...), each by name. Empty: train may start.
std::vector<Problem> check_trainable(const Resolved& resolved);

}  // namespace intarsia::config
