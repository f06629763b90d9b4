#include "intarsia/cli/commands/launch_command.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/launch/program.h"

namespace intarsia::cli {

int launch_command(int argc, char** argv) {
  // What follows "--" is the program's and not looked at.
  int own = 0;
  while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;
  const std::vector<std::string> program(argv + std::min(own + 1, argc), argv + argc);

  CLI::App app(
      "Starts PROGRAM on N ranks of this host, each with its share of the cores and with RANK, WORLD_SIZE, "
      "LOCAL_RANK,\n"
      "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as torchrun would. If one fails, all are ended.",
      "intarsia launch");
  launch::LocalRanksOptions options;
  std::string bind = "cores";
  app.add_option("--ranks", options.ranks, "number of processes")->required()->type_name("N");
  app.add_option("--bind", bind, "what a rank is bound to: its share of the cores, its memory node, nothing")
      ->type_name("cores|numa|none");
  try {
    app.parse(own, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, error.what(), "; intarsia launch --help lists the flags");
  }
  options.bind = launch::parse_bind(bind);
  INTARSIA_CHECK(kUsage, !program.empty(), "no program: write intarsia launch --ranks ", options.ranks,
                 " -- PROGRAM ARGS");
  return launch::run_program_ranks(options, program);
}

}  // namespace intarsia::cli
