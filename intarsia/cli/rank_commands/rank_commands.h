// The commands that compute. argv[0] is the command's name; each returns the exit code and throws intarsia::Error.
#pragma once

namespace intarsia::cli {

int train_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int generate_command(int argc, char** argv);
int doctor_command(int argc, char** argv);
int bench_command(int argc, char** argv);

}  // namespace intarsia::cli
