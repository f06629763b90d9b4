// intarsia tokenizer train: learns a vocabulary from text.
#pragma once

namespace intarsia::cli {

// argv[0] is the command, argv[1] "train". Returns the exit code. Errors: kUsage and those of reading and writing.
int tokenizer_command(int argc, char** argv);

}  // namespace intarsia::cli
