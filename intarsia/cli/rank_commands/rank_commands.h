// The commands that compute. argv[0] is the command's name; each returns the exit code and throws intarsia::Error.
#pragma once

#include <string>

#include "intarsia/cli/commands/checkpoint_commands.h"

namespace intarsia::cli {

int train_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int generate_command(int argc, char** argv);
int doctor_command(int argc, char** argv);
int bench_command(int argc, char** argv);

// Opens one of our own checkpoints, a RUN (its newest), or a peer's.
formats::LogicalCheckpoint open_any(const std::string& path, bool verify);

// The commands of checkpoint_commands.h, for all these.
int convert_any(int argc, char** argv);
int inspect_any(int argc, char** argv);
int diff_any(int argc, char** argv);

}  // namespace intarsia::cli
