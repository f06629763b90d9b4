// intarsia tokenize: documents to token ids.
#pragma once

namespace intarsia::cli {

// argv[0] is the command. Returns the exit code. Errors: kUsage and those of reading, tokenizing and writing.
int tokenize_command(int argc, char** argv);

}  // namespace intarsia::cli
