#include "intarsia/cli/commands/plan_command.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "intarsia/base/text.h"
#include "intarsia/cli/run_arguments.h"
#include "intarsia/config/resolve.h"
#include "intarsia/io/file.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/report/pictures.h"
#include "intarsia/plan/report/plan_report.h"
#include "intarsia/plan/resized_vocab.h"
#include "intarsia/plan/settle_open.h"

namespace intarsia::cli {
namespace {

// A model by its size alone.
struct BareSize {
  double params = 0;
  std::int64_t layers = 0, heads = 0, vocab = 32000;
};

struct PlanFlags {
  BareSize size;
  std::string cluster, html, svg, csv;
  std::string show_cluster;
  bool json = false;
  double margin = 0.05;
  std::int64_t devices = 0, global_batch = 0;
  int tensor = 0, pipeline = 0, keep = 10;
};

void add_flags(CLI::App& app, PlanFlags& flags) {
  app.add_option("--params", flags.size.params, "parameters of a model of which only the size is known: 70e9");
  app.add_option("--layers", flags.size.layers, "layers, with --params");
  app.add_option("--heads", flags.size.heads, "attention heads, with --params [hidden / 128]");
  app.add_option("--vocab", flags.size.vocab, "vocabulary, with --params [32000]");
  app.add_option("--cluster", flags.cluster, "rates and memory: a ready cluster's name, or a JSON file");
  app.add_option("--show-cluster", flags.show_cluster, "print a ready cluster as JSON, and stop");
  app.add_option("--devices", flags.devices, "search the layouts of this many devices of --cluster");
  app.add_option("--global-batch", flags.global_batch,
                 "samples of an update, for the search [the run's, or --devices]");
  app.add_option("--tensor", flags.tensor, "hold tensor-parallel ranks fixed in the search");
  app.add_option("--pipeline", flags.pipeline, "hold pipeline ranks fixed in the search");
  app.add_option("--show", flags.keep, "layouts shown [10]");
  app.add_option("--margin", flags.margin, "share of the memory that must stay free [0.05]");
  app.add_flag("--json", flags.json, "print JSON");
  app.add_option("--csv", flags.csv, "write the numbers to this file");
  app.add_option("--html", flags.html, "write a report with pictures to this file (self-contained)");
  app.add_option("--svg", flags.svg, "write the picture of memory by stage to this file");
}

std::int64_t rounded(double value, std::int64_t multiple) {
  return std::max<std::int64_t>(1, std::llround(value / static_cast<double>(multiple))) * multiple;
}

// A Llama of about that size: 12 h^2 a layer and two embeddings.
formats::HfConfig config_of_size(const BareSize& size, std::optional<std::int64_t> hidden, std::int64_t seq_len) {
  INTARSIA_CHECK(kUsage, size.layers > 0, "--params needs --layers");
  INTARSIA_CHECK(kUsage, size.params >= 1e5, "--params ", size.params, "; at least 1e5 is expected, as in 70e9");
  formats::HfConfig config;
  config.num_hidden_layers = size.layers;
  config.vocab_size = size.vocab;
  const double a = 12 * static_cast<double>(size.layers), b = 2 * static_cast<double>(size.vocab);
  const double exact = (-b + std::sqrt(b * b + 4 * a * size.params)) / (2 * a);
  config.hidden_size = hidden.value_or(rounded(exact, exact > 512 ? 128 : 16));
  config.intermediate_size = rounded(8.0 / 3 * static_cast<double>(config.hidden_size), exact > 512 ? 128 : 16);
  config.num_attention_heads =
      size.heads > 0 ? size.heads : std::max<std::int64_t>(1, config.hidden_size / (exact > 512 ? 128 : 16));
  config.num_key_value_heads = config.num_attention_heads;
  INTARSIA_CHECK(kUsage, config.hidden_size % config.num_attention_heads == 0, "--heads ", config.num_attention_heads,
                 " does not divide the hidden size ", config.hidden_size);
  config.head_dim = config.hidden_size / config.num_attention_heads;
  config.max_position_embeddings = std::max<std::int64_t>(2048, seq_len);
  return config;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

plan::ModelSource model_of(const PlanFlags& flags, const config::Resolved& resolved,
                           std::optional<std::int64_t> hidden) {
  const std::string& model = resolved.config.run.model;
  if (flags.size.params > 0) {
    INTARSIA_CHECK(kUsage, model.empty(), "--params and --model ", printable(model), " are both given; give one");
    plan::ModelSource source;
    source.config = config_of_size(flags.size, hidden, resolved.config.run.seq_len);
    source.name = concat("a Llama of ", shortest(flags.size.params), " parameters");
    return source;
  }
  if (std::filesystem::is_regular_file(model)) {  // a config.json alone
    plan::ModelSource source;
    source.config = formats::parse_hf_config(read_text(model), model);
    source.name = std::filesystem::absolute(model).parent_path().filename().string();
    return source;
  }
  return plan::find_model(model);
}

plan::SearchSpace search_space(const PlanFlags& flags, const config::Resolved& resolved, const plan::RunPlan& run) {
  plan::SearchSpace space;
  space.devices = static_cast<int>(flags.devices > 0 ? flags.devices : run.ranks);
  space.global_batch =
      flags.global_batch > 0 ? flags.global_batch : std::max<std::int64_t>(run.global_batch(), space.devices);
  space.margin = flags.margin;
  space.keep = static_cast<std::size_t>(std::max(1, flags.keep));
  if (flags.tensor > 0) space.tensor = flags.tensor;
  if (flags.pipeline > 0) space.pipeline = flags.pipeline;
  const auto asked = [&](const char* path) {
    const auto origin = resolved.origins.find(path);
    return origin != resolved.origins.end() && origin->second != "default" && !origin->second.starts_with("auto");
  };
  if (asked("zero_optimization.stage")) space.stage = run.stage;
  if (asked("train_micro_batch_size_per_gpu")) space.micro_batch = static_cast<int>(run.micro_batch);
  if (run.recompute.policy == plan::Recompute::kFull) space.recomputed = plan::Recomputed::kFull;
  if (run.recompute.policy == plan::Recompute::kSelective) space.recomputed = plan::Recomputed::kProducts;
  return space;
}

}  // namespace

int plan_command(int argc, char** argv) {
  CLI::App app(
      "Says what a run would need and take, without running it: memory of a rank in each stage, time on a cluster,\n"
      "the best layouts of many devices. Takes the flags and files of intarsia train.",
      "intarsia plan");
  RunArguments arguments;
  PlanFlags flags;
  add_flags(app, flags);
  arguments.add_to(app);
  if (arguments.parse(app, argc, argv)) return 0;
  if (!flags.show_cluster.empty()) {
    std::cout << plan::cluster_json(plan::find_cluster(flags.show_cluster));
    return 0;
  }
  INTARSIA_CHECK(kUsage, flags.margin >= 0 && flags.margin < 1, "--margin ", flags.margin, "; allowed: 0 to below 1");
  INTARSIA_CHECK(kUsage, flags.devices == 0 || !flags.cluster.empty(), "--devices needs --cluster");

  config::ResolveInput input = arguments.input();
  input.for_training = input.planner_follows = true;
  config::Resolved resolved = config::resolve(input);
  // Without --ranks the table of stages is for all devices that are asked about.
  if (flags.devices > 0 && resolved.config.run.ranks == 1) resolved.config.run.ranks = flags.devices;
  plan::ModelSource model = model_of(flags, resolved, input.model.hidden_size);
  model.config.vocab_size = plan::resized_vocab(resolved.config.run, model.config.vocab_size,
                                                plan::tokens_of(model.directory, resolved.config.run));

  plan::ReportRequest request;
  request.model = model.name;
  request.config = model.config;
  request.margin = flags.margin;
  request.local_ranks = static_cast<int>(resolved.config.run.ranks);
  if (flags.cluster.empty()) {
    request.limit = plan::read_memory_limit();
  } else {
    request.cluster = plan::find_cluster(flags.cluster);
    request.local_ranks = std::min(request.local_ranks, request.cluster->devices_per_host);
    request.limit = {static_cast<std::int64_t>(request.cluster->device.memory_bytes * request.local_ranks),
                     concat("the devices of ", request.cluster->name)};
  }
  plan::OpenRequest open{.limit = request.limit, .local_ranks = request.local_ranks, .margin = flags.margin};
  if (request.cluster) open.cluster = *request.cluster;
  if (plan::settle_open(resolved, model.config, open)) request.chosen = resolved.reports.back().message;
  const std::int64_t seq_len = plan::sequence_length(resolved.config.run.seq_len, model.config);
  request.run =
      plan::make_run_plan(resolved.config, model.config, seq_len, std::max<std::int64_t>(1, resolved.config.run.steps));
  request.replay = plan::replay_options(resolved.config);
  for (const config::Problem& problem : check_trainable(resolved)) request.refusals.push_back(problem.text());
  if (flags.devices > 0) request.space = search_space(flags, resolved, request.run);

  const plan::PlanReport report = plan::make_report(request);
  if (!flags.csv.empty()) io::write_file_atomic(flags.csv, plan::report_csv(report));
  if (!flags.html.empty()) io::write_file_atomic(flags.html, plan::report_html(report));
  if (!flags.svg.empty()) io::write_file_atomic(flags.svg, plan::stages_svg(report));
  std::cout << (flags.json ? plan::report_json(report) : plan::report_text(report)) << std::flush;
  return 0;
}

}  // namespace intarsia::cli
