#include "intarsia/cli/commands/example_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/cli/prefix.h"

namespace intarsia::cli {
namespace {

namespace fs = std::filesystem;

fs::path examples_folder() { return installation_prefix() / "share" / "intarsia" / "examples"; }

// The title of an example's README: "# Title".
std::string title_of(const fs::path& example) {
  std::ifstream readme(example / "README.md");
  std::string line;
  std::getline(readme, line);
  return line.starts_with("# ") ? line.substr(2) : line;
}

// Names of the examples that are installed, in order. Errors: kIo when the folder is not there.
std::vector<std::string> names() {
  const fs::path folder = examples_folder();
  std::error_code error;
  std::vector<std::string> out;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (fs::exists(at->path() / "README.md")) out.push_back(at->path().filename().string());
  INTARSIA_CHECK(kIo, !error, folder.string(), ": ", error.message(), "; is the installation complete?");
  std::ranges::sort(out);
  return out;
}

int list() {
  for (const std::string& name : names())
    std::cout << name << std::string(std::max<std::size_t>(1, 12 - name.size()), ' ')
              << title_of(examples_folder() / name) << "\n";
  std::cout << "\nintarsia example cp NAME DIR copies one; its README.md has the commands\n";
  return 0;
}

int copy(const std::string& name, const std::string& to) {
  const std::vector<std::string> known = names();
  if (std::ranges::find(known, name) == known.end()) {
    const std::optional<std::string> close = nearest(name, known);
    fail(ErrorKind::kUsage, "no example ", printable(name),
         close ? concat("; did you mean ", *close, "?") : concat("; there are ", join(known)));
  }
  std::error_code error;
  const bool taken = fs::exists(to, error) && !fs::is_empty(to, error);
  INTARSIA_CHECK(kUsage, !error && !taken, to, " exists and is not an empty folder; give another name");
  fs::create_directories(to, error);
  if (!error) fs::copy(examples_folder() / name, to, fs::copy_options::recursive, error);
  INTARSIA_CHECK(kIo, !error, to, ": the example cannot be copied: ", error.message());
  std::cout << "copied to " << to << "; next: cd " << to << ", and the commands in README.md\n";
  return 0;
}

}  // namespace

int example_command(int argc, char** argv) {
  CLI::App app("Jobs to start from: each a configuration, a data sample, and a README with the commands.",
               "intarsia example");
  std::string name, to;
  app.require_subcommand(1);
  app.add_subcommand("ls", "list the examples");
  CLI::App* cp = app.add_subcommand("cp", "copy one into a new folder");
  cp->add_option("NAME", name, "as ls shows it")->required()->type_name("");
  cp->add_option("DIR", to, "where to; must not exist, or be empty")->required()->type_name("");
  return run_app(app, argc, argv, "intarsia example", "", [&] { return cp->parsed() ? copy(name, to) : list(); });
}

}  // namespace intarsia::cli
