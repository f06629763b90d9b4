#include "intarsia/cli/commands/config_command.h"

#include <iostream>
#include <string>

#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/run_arguments.h"
#include "intarsia/config/effective.h"
#include "intarsia/plan/lr_schedule.h"

namespace intarsia::cli {
namespace {

using Json = nlohmann::ordered_json;

// The updates whose learning rates are shown.
constexpr int kUpdates[] = {1, 2, 3, 10, 100};

Json effective_with_rates(const config::Resolved& resolved) {
  Json effective = config::effective_json(resolved);
  Json& scheduler = effective["scheduler"];
  const bool nobodys = resolved.config.optimizer.source == config::Source::kCaller && scheduler["source"] == "none";
  if (nobodys || config::waits_for_length(resolved.config.scheduler)) {
    scheduler["lr_at_update"] = nullptr;
    return effective;
  }
  const plan::LrSchedule schedule = plan::schedule_of(resolved.config);
  for (const int update : kUpdates) scheduler["lr_at_update"][std::to_string(update)] = schedule.lr_at_update(update);
  if (schedule.kind == plan::ScheduleKind::kOneCycle) {
    for (const int update : kUpdates)
      scheduler["beta1_at_update"][std::to_string(update)] = schedule.beta1_at_update(update);
  }
  return effective;
}

Json reports_json(const config::Resolved& resolved) {
  Json out = Json::array();
  for (const config::Report& report : resolved.reports) {
    out.push_back({{"level", report.level == config::Report::Level::kWarning ? "warning" : "note"},
                   {"path", report.path},
                   {"line", report.line > 0 ? Json(report.line) : Json(nullptr)},
                   {"text", report.text()}});
  }
  return out;
}

void print_flat(const Json& value, const std::string& path) {
  if (!value.is_object()) {
    std::cout << "  " << path << " = " << value.dump() << "\n";
    return;
  }
  for (const auto& [key, item] : value.items()) print_flat(item, path.empty() ? key : path + "." + key);
}

void print_reports(const config::Resolved& resolved) {
  for (const config::Report& report : resolved.reports) std::cout << report.text() << "\n";
}

void show(const config::Resolved& resolved, bool json) {
  if (json) {
    const Json out = {{"effective", effective_with_rates(resolved)},
                      {"origins", resolved.origins},
                      {"reports", reports_json(resolved)}};
    std::cout << out.dump(2) << "\n";
    return;
  }
  std::cout << "In force:\n";
  print_flat(effective_with_rates(resolved), "");
  std::cout << "\nNot by default:\n";
  for (const auto& [path, origin] : resolved.origins) {
    const auto value = resolved.values.find(path);
    if (origin != "default")
      std::cout << "  " << path << " = " << (value == resolved.values.end() ? "" : value->second) << "  (" << origin
                << ")\n";
  }
  if (!resolved.reports.empty()) std::cout << "\n";
  print_reports(resolved);
}

void check(const config::Resolved& resolved, const std::string& file, bool json) {
  const config::TrainConfig& config = resolved.config;
  if (json) {
    const Json out = {{"errors", Json::array()},
                      {"reports", reports_json(resolved)},
                      {"train_refuses", config::problems_json(check_trainable(resolved))}};
    std::cout << out.dump(2) << "\n";
    return;
  }
  print_reports(resolved);
  std::cout << file << ": well formed; stage " << config.zero.stage << ", batch " << config.batch.train_batch_size
            << " = " << config.batch.micro_batch_size << " x " << config.batch.accumulation << " x " << config.run.ranks
            << " ranks\n";
}

int mistakes(const config::ConfigError& error, bool json) {
  if (json) {
    std::cout << Json{{"errors", config::problems_json(error.problems())}}.dump(2) << "\n";
  } else if (error.problems().size() == 1) {
    log_error(error.what());
  } else {
    log_error(concat(error.problems().size(), " mistakes in the configuration\n", error.what()));
  }
  return exit_code(error.kind());
}

}  // namespace

int config_command(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "convert") {
    try {
      return config_convert_command(argc - 1, argv + 1);
    } catch (const config::ConfigError& error) {
      return mistakes(error, false);
    }
  }
  if (verb != "show" && verb != "check") {
    const bool help = verb == "--help" || verb == "-h";
    if (help) {
      std::cout << "intarsia config show FILE [flags] [--json]    what the configuration means\n"
                   "intarsia config check FILE [flags] [--json]   what is wrong with it\n"
                   "intarsia config convert FILE --to fsdp|deepspeed   the same in an Accelerate YAML, or back\n";
      return 0;
    }
    fail(ErrorKind::kUsage, "intarsia config ", printable(verb), ": show, check or convert is expected");
  }
  CLI::App app("Reads a DeepSpeed JSON and says what it means here", "intarsia config " + verb);
  RunArguments arguments;
  bool json = false;
  app.add_option("FILE", arguments.file, "DeepSpeed JSON");
  app.add_flag("--json", json, "print JSON");
  arguments.add_to(app);
  if (arguments.parse(app, argc - 1, argv + 1)) return 0;
  const config::ResolveInput input = arguments.input();
  INTARSIA_CHECK(kUsage, verb == "show" || !input.file.empty(), "intarsia config check: a FILE is expected");
  try {
    const config::Resolved resolved = config::resolve(input);
    verb == "show" ? show(resolved, json) : check(resolved, input.file, json);
    return 0;
  } catch (const config::ConfigError& error) {
    return mistakes(error, json);
  }
}

bool check_run_arguments(int argc, char** argv) {
  CLI::App app("Trains a model", concat("intarsia ", argv[0]));
  RunArguments arguments;
  arguments.add_to(app);
  if (arguments.parse(app, argc, argv)) return false;
  config::ResolveInput input = arguments.input();
  input.for_training = input.planner_follows = true;
  const std::vector<config::Problem> refusals = check_trainable(config::resolve(input));
  if (!refusals.empty()) throw config::ConfigError(refusals);
  return true;
}

}  // namespace intarsia::cli
