// intarsia config show|check|convert FILE: what a DeepSpeed JSON means here, what is wrong with it, and the same in
// other words.
#pragma once

namespace intarsia::cli {

// argv[0] is "config". Returns the exit code: 0, or 2 with mistakes.
int config_command(int argc, char** argv);

// `config convert`, argv[0] being "convert". Errors: ConfigError, kUsage, kIo.
int config_convert_command(int argc, char** argv);

// What `train` and `plan` check before anything heavy is loaded: flags, file and what training cannot do yet.
// argv[0] is the command. Returns false when help was printed and there is nothing to run. Errors: ConfigError, kUsage.
bool check_run_arguments(int argc, char** argv);

}  // namespace intarsia::cli
