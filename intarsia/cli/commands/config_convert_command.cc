#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/config_command.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/config/convert/convert.h"
#include "intarsia/io/file.h"

namespace intarsia::cli {
namespace {

struct Arguments {
  std::string file, to, out;
  std::int64_t ranks = 0;
  bool strict = false;
};

int run(const Arguments& arguments) {
  std::error_code error;
  INTARSIA_CHECK(kUsage, std::filesystem::exists(arguments.file, error), printable(arguments.file), ": no such file");
  const bool is_yaml = arguments.file.ends_with(".yaml") || arguments.file.ends_with(".yml");
  const config::SaidWords said = is_yaml ? config::read_accelerate_words(arguments.file)
                                         : config::read_deepspeed_words(arguments.file, arguments.ranks);
  for (const config::Report& warning : said.warnings)
    log_warning(concat(warning.path, ": ", warning.message, " (", warning.file, ":", warning.line, ")"));
  const config::ConvertedConfig converted =
      arguments.to == "fsdp" ? config::write_accelerate(said) : config::write_deepspeed(said);
  if (!converted.unsaid.empty()) {
    std::string list;
    for (const std::string& line : converted.unsaid) list += concat("\n  ", line);
    log_warning(concat(converted.unsaid.size(), " of ", printable(arguments.file), " cannot be said with --to ",
                       arguments.to, ":", list));
    INTARSIA_CHECK(kUnsupported, !arguments.strict, "--strict: nothing was written, as not everything can be said");
  }
  if (arguments.out.empty()) {
    std::cout << converted.text;
  } else {
    io::write_file_atomic(arguments.out, converted.text);
  }
  return 0;
}

}  // namespace

int config_convert_command(int argc, char** argv) {
  CLI::App app(
      "Writes a DeepSpeed JSON in the FSDP words of an Accelerate YAML, or the other way round. FILE is a DeepSpeed "
      "JSON\n"
      "or, ending in .yaml, an Accelerate YAML. What cannot be said there is listed.",
      "intarsia config convert");
  Arguments arguments;
  app.add_option("FILE", arguments.file, "what to read")->required()->type_name("");
  app.add_option("--to", arguments.to, "deepspeed or fsdp")->required()->check(CLI::IsMember({"deepspeed", "fsdp"}));
  app.add_option("--out", arguments.out, "file to write [standard output]")->type_name("");
  app.add_option("--ranks", arguments.ranks, "ranks of the run, which a DeepSpeed JSON does not tell")
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--strict", arguments.strict, "write nothing when something cannot be said (exit code 2)");
  return run_app(app, argc, argv, "intarsia config convert", "stopped", [&] { return run(arguments); });
}

}  // namespace intarsia::cli
