// intarsia: what needs no torch runs here; what computes is handed to libexec/intarsia-rank.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/checkpoint_commands.h"
#include "intarsia/cli/commands/config_command.h"
#include "intarsia/cli/commands/example_command.h"
#include "intarsia/cli/commands/launch_command.h"
#include "intarsia/cli/commands/plan_command.h"
#include "intarsia/cli/commands/tokenize_command.h"
#include "intarsia/cli/commands/tokenizer_command.h"
#include "intarsia/cli/prefix.h"

namespace intarsia::cli {
namespace {

// Becomes libexec/intarsia-rank with the same arguments; argv[0] is the command. Returns only by throwing.
int run_rank_program(int argc, char** argv) {
  // c10d's warnings (no reverse name of a peer, say) are for its developers; a user who wants them sets the variable.
  ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  // Threads that wait for each other by spinning take the cores from ranks, and from whatever else the host runs.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  const std::string program = (installation_prefix() / "libexec" / "intarsia-rank").string();
  std::vector<char*> words;
  words.push_back(const_cast<char*>(program.c_str()));
  for (int i = 0; i < argc; ++i) words.push_back(argv[i]);
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  fail(ErrorKind::kIo, program, ": cannot be started: ", std::strerror(errno), "; is the installation complete?");
}

int train_command(int argc, char** argv) {
  // Mistakes in flags and file are found before torch is loaded.
  return check_run_arguments(argc, argv) ? run_rank_program(argc, argv) : 0;
}

// convert, inspect, diff: here, or with the trainer's reader where one of our own checkpoints is named.
int convert_here(int argc, char** argv) {
  return names_native_checkpoint(argc, argv) || asks_for_native(argc, argv) ? run_rank_program(argc, argv)
                                                                            : convert_command(argc, argv, open_peer);
}
int inspect_here(int argc, char** argv) {
  return names_native_checkpoint(argc, argv) ? run_rank_program(argc, argv) : inspect_command(argc, argv, open_peer);
}
int diff_here(int argc, char** argv) {
  return names_native_checkpoint(argc, argv) ? run_rank_program(argc, argv) : diff_command(argc, argv, open_peer);
}

struct Command {
  const char* name;
  const char* help;
  int (*run)(int argc, char** argv);  // argv[0] is the command's name
};

// One line per command; those of other files are declared in commands/NAME_command.h.
constexpr std::array kCommands = {
    Command{"train", "train a model", train_command},
    Command{"plan", "memory and time of a run before it starts", plan_command},
    Command{"eval", "evaluate a model on data", run_rank_program},
    Command{"generate", "continue a text", run_rank_program},
    Command{"config", "show or check a DeepSpeed JSON", config_command},
    Command{"convert", "write a model or checkpoint in another format", convert_here},
    Command{"inspect", "what is in a checkpoint or model", inspect_here},
    Command{"diff", "compare two checkpoints or models", diff_here},
    Command{"tokenize", "turn text into tokens", tokenize_command},
    Command{"tokenizer", "train a tokenizer", tokenizer_command},
    Command{"launch", "start local ranks of any program", launch_command},
    Command{"example", "jobs to start from", example_command},
    Command{"doctor", "check this machine", run_rank_program},
    Command{"bench", "measure this host, and where a step of a run spends its time", run_rank_program},
};

void print_help() {
  std::cout << "intarsia: trains models that do not fit one device\n\nintarsia COMMAND [flags]\n";
  for (const Command& command : kCommands) {
    std::cout << "  " << command.name << std::string(12 - std::string_view(command.name).size(), ' ') << command.help
              << "\n";
  }
  std::cout << "\nintarsia COMMAND --help describes a command; intarsia --version\n";
}

int dispatch(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return 0;
  }
  if (name == "--version") {
    std::cout << "intarsia " INTARSIA_VERSION "\n";
    return 0;
  }
  std::vector<std::string> known;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
    known.emplace_back(command.name);
  }
  const std::optional<std::string> close = nearest(name, known);
  fail(ErrorKind::kUsage, "unknown command ", printable(name),
       close ? concat("; did you mean ", *close, "?") : concat("; the commands are ", join(known)));
}

}  // namespace
}  // namespace intarsia::cli

int main(int argc, char** argv) {
  using intarsia::ErrorKind;
  try {
    return intarsia::cli::dispatch(argc, argv);
  } catch (const intarsia::Error& error) {
    intarsia::log_error(error.what());
    return intarsia::exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    intarsia::log_error("out of memory");
    return intarsia::exit_code(ErrorKind::kMemory);
  } catch (const std::exception& error) {
    intarsia::log_error(error.what());
    return intarsia::exit_code(ErrorKind::kInternal);
  }
}
