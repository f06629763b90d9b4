// intarsia launch: a user's own program as the ranks of this host.
#pragma once

namespace intarsia::cli {

// argv[0] is the command. Returns the exit code: that of launch::run_local_ranks. Errors: kUsage.
int launch_command(int argc, char** argv);

}  // namespace intarsia::cli
