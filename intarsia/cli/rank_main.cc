// libexec/intarsia-rank: the commands that compute. Users start `intarsia`, which hands over to this program.
#include <array>
#include <exception>
#include <new>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/cli/rank_commands/rank_commands.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
};

constexpr std::array kCommands = {
    Command{"train", intarsia::cli::train_command},       Command{"eval", intarsia::cli::eval_command},
    Command{"generate", intarsia::cli::generate_command}, Command{"doctor", intarsia::cli::doctor_command},
    Command{"bench", intarsia::cli::bench_command},       Command{"convert", intarsia::cli::convert_any},
    Command{"inspect", intarsia::cli::inspect_any},       Command{"diff", intarsia::cli::diff_any}};

int dispatch(int argc, char** argv) {
  for (const Command& command : kCommands)
    if (argc > 1 && command.name == argv[1]) return command.run(argc - 1, argv + 1);
  intarsia::fail(intarsia::ErrorKind::kUsage, "this program is started by intarsia; see intarsia --help");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const intarsia::Error& error) {
    intarsia::log_error(error.what());
    return intarsia::exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    intarsia::log_error("out of memory");
    return intarsia::exit_code(intarsia::ErrorKind::kMemory);
  } catch (const std::exception& error) {
    intarsia::log_error(error.what());
    return intarsia::exit_code(intarsia::ErrorKind::kInternal);
  }
}
