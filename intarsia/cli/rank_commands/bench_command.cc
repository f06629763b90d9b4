// intarsia bench: what this host does, and where a step of a run spends its time.
#include <ATen/ATen.h>

#include <iostream>

#include "intarsia/base/text.h"
#include "intarsia/cli/rank_commands/host_rates.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/cli/run_arguments.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/io/file.h"
#include "intarsia/plan/settle_open.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/profile.h"
#include "intarsia/train/step.h"

namespace intarsia::cli {
namespace {

struct BenchFlags {
  std::string cluster_file, trace_file, disk;
  int timed_steps = 5;
};

// The run of the flags with random weights and, as data, numbers that follow each other.
train::TrainJob job_of(const config::ResolveInput& input) {
  config::Resolved resolved = config::resolve(input);
  if (auto refusals = config::check_trainable(resolved); !refusals.empty())
    throw config::ConfigError(std::move(refusals));
  const plan::ModelSource model = plan::find_model(resolved.config.run.model);
  plan::settle_open(resolved, model.config,
                    {.limit = plan::read_memory_limit(), .local_ranks = static_cast<int>(resolved.config.run.ranks)});
  INTARSIA_CHECK(kUnsupported, resolved.config.run.device == DeviceKind::kCpu, "intarsia bench times steps on the CPU");
  train::TrainJob job;
  job.model = model.config;
  job.random_weights = true;
  const std::int64_t seq_len = plan::sequence_length(resolved.config.run.seq_len, model.config);
  job.plan = plan::make_run_plan(resolved.config, model.config, seq_len, 1);
  job.lora = plan::lora_plan(resolved.config.lora, job.plan.model);
  return job;
}

data::Batch batch_of(const train::TrainJob& job) {
  const std::int64_t rows = job.plan.micro_batch, length = job.plan.seq_len;
  const at::Tensor ids = at::arange(rows * length, at::kLong).remainder(job.model.vocab_size).view({rows, length});
  return {ids, ids, at::Tensor(), rows * (length - 1), std::vector<std::int64_t>(static_cast<std::size_t>(rows))};
}

void time_steps(const train::TrainJob& job, const BenchFlags& flags) {
  const plan::StepReplay replay = plan::replay_step(job.plan, job.model);
  const plan::HostNeed need = plan::host_need(replay, job.plan.ranks);
  const std::string too_large = plan::does_not_fit(need, plan::read_memory_limit(), job.plan);
  INTARSIA_CHECK(kMemory, too_large.empty(), too_large);
  std::vector<std::unique_ptr<train::StepProfile>> profiles(static_cast<std::size_t>(job.plan.ranks));
  for (auto& profile : profiles) profile = std::make_unique<train::StepProfile>(job.plan);
  comm::run_grid(job.plan.grid(),
                 [&](const comm::DataAxes& given) {
                   train::StepProfile& profile = *profiles[static_cast<std::size_t>(given.world.rank())];
                   train::WatchedAxes watched(given, &profile);
                   const comm::DataAxes axes = watched.axes();
                   const train::Assembly made = train::assemble(job, axes);
                   const data::Batch batch = batch_of(job);
                   for (int step = 0; step < flags.timed_steps + 2; ++step) {
                     if (step == 2) profile.clear();  // slots and buffers have grown
                     train::train_step(
                         *made.engine, *made.model, *made.optimizer, *made.loss_scale, job.plan.accumulation,
                         [&](std::int64_t) { return batch; }, [] { return train::RankReport{}; }, {}, &profile);
                   }
                 },
                 {.force_copy = job.plan.force_copy, .timeout_seconds = 300});
  std::cout << "\n"
            << short_name(job.plan.compute_dtype) << ", "
            << plan::describe(job.plan.placement, job.plan.stage, job.plan.grid()) << ", " << job.plan.ranks
            << (job.plan.ranks > 1 ? " ranks as threads" : " rank") << ", " << job.plan.micro_batch << " x "
            << job.plan.seq_len << " tokens x " << job.plan.accumulation << "\n"
            << train::profile_text(*profiles[0], job.plan, replay);
  if (flags.trace_file.empty()) return;
  std::vector<const train::StepProfile*> all;
  for (const auto& profile : profiles) all.push_back(profile.get());
  io::write_file_atomic(flags.trace_file, train::trace_json(all));
  std::cout << "\nwritten: " << flags.trace_file << " (open it in chrome://tracing or ui.perfetto.dev)\n";
}

}  // namespace

int bench_command(int argc, char** argv) {
  CLI::App app(
      "Says what this host does (products, memory, collectives, disk) and, with --model and the flags of intarsia\n"
      "train, where a step of that run spends its time.",
      "intarsia bench");
  RunArguments arguments;
  BenchFlags flags;
  app.add_option("--write-cluster", flags.cluster_file, "write this host's rates, for intarsia plan --cluster FILE");
  app.add_option("--trace", flags.trace_file,
                 "with --model: write the steps as a trace for chrome://tracing or Perfetto");
  app.add_option("--timed-steps", flags.timed_steps, "with --model: steps that are timed, after two that are not [5]");
  app.add_option("--disk", flags.disk, "a folder whose disk is measured with a file of 64 MiB; without it none is");
  arguments.add_to(app);
  if (arguments.parse(app, argc, argv)) return 0;
  config::ResolveInput input = arguments.input();
  input.for_training = input.planner_follows = true;
  for (const config::FlagValue& flag : input.flags)
    if (flag.spec->key == "ranks") input.ranks = std::max(1, std::atoi(flag.values.at(0).c_str()));
  INTARSIA_CHECK(kUsage, input.ranks <= 256, "--ranks ", input.ranks, "; allowed: 1 to 256");
  INTARSIA_CHECK(kUsage, flags.timed_steps >= 1 && flags.timed_steps <= 1000, "--timed-steps ", flags.timed_steps,
                 "; allowed: 1 to 1000");
  const config::Resolved resolved = config::resolve(input);
  const bool has_model = !resolved.config.run.model.empty();
  INTARSIA_CHECK(kUsage, flags.trace_file.empty() || has_model, "--trace is of a run's steps: give --model");
  if (!has_model || !flags.cluster_file.empty()) {
    const HostRates all = measure_rates(input.ranks, flags.disk);
    std::cout << rates_text(all);
    if (!flags.cluster_file.empty()) {
      const HostRates alone = input.ranks > 1 ? measure_rates(1, "") : all;
      io::write_file_atomic(flags.cluster_file, plan::cluster_json(cluster_of(all, alone)));
      std::cout << "written: " << flags.cluster_file << "; use it with intarsia plan --cluster " << flags.cluster_file
                << "\n";
    }
  }
  if (has_model) time_steps(job_of(input), flags);
  return 0;
}

}  // namespace intarsia::cli
