// intarsia plan: what a run would need and take, without running it.
#pragma once

namespace intarsia::cli {

// argv[0] is the command's name. Returns the exit code: 0 also when the run would not fit (the answer is the output).
int plan_command(int argc, char** argv);

}  // namespace intarsia::cli
