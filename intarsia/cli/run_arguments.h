// The flags of a run on a command line: registered from config's one table, with Hugging Face's spellings as aliases.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/config/resolve.h"

namespace intarsia::cli {

// Use: construct, add_to(app), parse(app, argc, argv), input(). The object must outlive the parse.
class RunArguments {
 public:
  // Registers --config, --trainer, --set, --hidden-size and every run flag.
  void add_to(CLI::App& app);

  // Parses argv[1..) after bringing aliases to their flag's name. Returns true when help was asked for and printed.
  // Errors: kUsage, with the nearest flag for an unknown one.
  bool parse(CLI::App& app, int argc, char** argv);

  // What was typed, as the resolver takes it. Ranks: --ranks, else WORLD_SIZE and its kin of a launcher, else 1. The
  // model's hidden size comes from --hidden-size or --model.
  config::ResolveInput input() const;

  std::string file;  // a positional FILE may be stored here by the command

 private:
  std::vector<config::FlagValue> flags() const;

  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, bool> switches_;
  std::map<std::string, std::string> written_;  // flag name -> the spelling that was used
  std::vector<std::string> shorthands_;         // --bf16, --fp16, --gradient_checkpointing, as typed
  std::string trainer_;
  std::vector<std::string> sets_;
  std::int64_t hidden_size_ = 0;
};

// The number of ranks that a launcher's environment names (torchrun, MPI, Slurm), or 1.
int world_size_of_environment();

}  // namespace intarsia::cli
