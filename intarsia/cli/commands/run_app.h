// What commands that work through data have in common: their command line, and an end by Ctrl-C.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace intarsia::cli {

// Parses the command line (--help is printed and ends with 0), then runs `body`, which may ask StopSignal::check().
// `stopped`: what is said when that ends it. Returns the exit code. Errors: kUsage for a command line that is wrong,
// with a pointer to `help`, the command that lists its flags; those of `body`.
int run_app(CLI::App& app, int argc, char** argv, const char* help, const char* stopped,
            const std::function<int()>& body);

}  // namespace intarsia::cli
