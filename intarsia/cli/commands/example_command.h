// intarsia example: jobs to start from.
#pragma once

namespace intarsia::cli {

// argv[0] is "example". Returns the exit code. Errors: kUsage, kIo.
int example_command(int argc, char** argv);

}  // namespace intarsia::cli
