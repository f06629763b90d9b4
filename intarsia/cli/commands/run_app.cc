#include "intarsia/cli/commands/run_app.h"

#include <iostream>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/cli/commands/stop_signal.h"

namespace intarsia::cli {

int run_app(CLI::App& app, int argc, char** argv, const char* help, const char* stopped,
            const std::function<int()>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, error.what(), "; ", help, " --help lists the flags");
  }
  const StopSignal stop;
  try {
    return body();
  } catch (const Stopped&) {
    log_note(stopped);
    return kStoppedExitCode;
  }
}

}  // namespace intarsia::cli
