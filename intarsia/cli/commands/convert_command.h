// intarsia convert: a model's files in another format.
#pragma once

namespace intarsia::cli {

// argv[0] is "convert". Returns the exit code. Errors: kUsage and those of reading and writing.
int convert_command(int argc, char** argv);

}  // namespace intarsia::cli
