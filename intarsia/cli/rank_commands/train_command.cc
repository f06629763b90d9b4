// intarsia train: configuration -> job -> ranks -> loop.
#include <algorithm>
#include <iostream>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/cli/rank_commands/ranks.h"
#include "intarsia/cli/run_arguments.h"
#include "intarsia/config/effective.h"
#include "intarsia/plan/memory/limits.h"
#include "intarsia/plan/resized_vocab.h"
#include "intarsia/plan/settle_open.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/console.h"
#include "intarsia/train/loop.h"
#include "intarsia/train/process.h"
#include "intarsia/train/run_folder.h"

namespace intarsia::cli {
namespace {

std::optional<int> ranks_flag(const config::ResolveInput& input) {
  for (const config::FlagValue& flag : input.flags)
    if (flag.spec->key == "ranks" && !flag.values.empty()) return std::atoi(flag.values[0].c_str());
  return std::nullopt;
}

launch::Bind bind_of(config::Bind bind) {
  return bind == config::Bind::kCores  ? launch::Bind::kCores
         : bind == config::Bind::kNuma ? launch::Bind::kNuma
                                       : launch::Bind::kNone;
}

int local_ranks_of(const RankSource& source) {
  return source.environment ? source.environment->local_world.value_or(1) : source.ranks;
}

// The cores that this process may use, divided among the ranks of this host.
int threads_of(const RankSource& source, int asked) {
  if (asked > 0) return asked;
  return std::max(1, static_cast<int>(launch::read_cores().all.size()) / std::max(1, local_ranks_of(source)));
}

// What the configuration leaves to the planner.
void settle(const RankSource& source, const plan::ModelSource& model, config::Resolved& resolved) {
  const bool open = resolved.config.batch.micro_is_open || resolved.config.zero.stage_is_open;
  if (!open) return;
  const int local_ranks = local_ranks_of(source);
  INTARSIA_CHECK(
      kConfig, local_ranks == source.ranks,
      "\"auto\" for the micro-batch or the stage follows a host's memory, and this run's ", source.ranks,
      " ranks are on several hosts, which may differ; give --batch-size and --stage (`intarsia plan --ranks ",
      source.ranks, "` says which fit)");
  plan::OpenRequest request{.limit = plan::read_memory_limit(), .local_ranks = local_ranks};
  if (source.environment) request.backend = plan::CommBackend::kGloo;
  formats::HfConfig trained = model.config;
  trained.vocab_size = plan::resized_vocab(resolved.config.run, trained.vocab_size,
                                           plan::tokens_of(model.directory, resolved.config.run));
  plan::settle_open(resolved, trained, request);
}

// Puts plan's prediction into the job; returns why the run cannot fit, or nothing.
std::string predict_memory(const RankSource& source, train::TrainJob& job) {
  const int local_ranks = local_ranks_of(source);
  const plan::StepReplay replay =
      plan::replay_step(job.plan, job.model,
                        {.isolated = job.dataset->is_isolated(),
                         .adapters_drop = job.lora.dropout > 0,
                         .background_save = job.loop.background_save && job.loop.save_every > 0});
  const plan::HostNeed need = plan::host_need(replay, local_ranks);
  const plan::MemoryLimit limit = plan::read_memory_limit();
  job.predicted_peak = std::max(replay.peak.total, replay.load_peak);
  job.memory_text = concat(format_bytes(job.predicted_peak), " at its peak (", replay.peak.label, "); ",
                           format_bytes(need.host), " on this host");
  if (limit.bytes > 0) job.memory_text += concat(", of ", format_bytes(limit.bytes), " that ", limit.from, " has");
  return plan::does_not_fit(need, limit, job.plan);
}

}  // namespace

int train_command(int argc, char** argv) {
  CLI::App app("Trains a model. Give at least --model and --data.", "intarsia train");
  RunArguments arguments;
  arguments.add_to(app);
  if (arguments.parse(app, argc, argv)) return 0;
  config::ResolveInput input = arguments.input();
  const RankSource source = find_ranks(ranks_flag(input));
  input.ranks = source.ranks;
  input.for_training = input.planner_follows = true;
  config::Resolved resolved = config::resolve(input);
  if (auto refusals = config::check_trainable(resolved); !refusals.empty())
    throw config::ConfigError(std::move(refusals));
  const plan::ModelSource model = plan::find_model(resolved.config.run.model);
  resolved.config.run.ranks = source.ranks;
  settle(source, model, resolved);

  const bool is_first = !source.environment || source.environment->rank == 0;
  std::string out = resolved.config.run.out;
  if (out.empty() && !source.environment && !resolved.config.run.dry_run) out = train::new_run_folder(model.name);
  train::TrainJob job = train::assemble_job(resolved, model, out);
  const int threads = resolved.config.run.threads;
  // Libraries may split sums by threads, and the default follows the number of ranks.
  job.plan.threads = job.plan.reproducible && threads == 0 ? 1 : threads_of(source, threads);
  job.plan.backend = effective_backend(source, job.plan.backend);
  config::settle_length(resolved.config.scheduler, job.plan.steps);
  job.config_json = config::resolved_config_json(resolved).dump(2) + "\n";
  const std::string too_large = predict_memory(source, job);
  if (source.environment && is_first)
    log_note(concat("rank ", source.environment->rank, " of ", source.environment->world, ", started by ",
                    source.environment->launcher, "; gloo for everything"));
  if (resolved.config.run.dry_run) {
    if (is_first) {
      train::Console(job).banner(out.empty() ? "none (--dry-run)" : out, "dry run");
      std::cout << job.config_json << std::flush;
    }
    INTARSIA_CHECK(kMemory, too_large.empty(), too_large);
    return 0;
  }
  INTARSIA_CHECK(kMemory, too_large.empty() || resolved.config.run.force, too_large);
  if (input.file.empty() && is_first)
    log_note(concat("without a --config this run amounts to the following JSON:\n", job.config_json));
  return run_ranks(source, job.plan, bind_of(resolved.config.run.bind), [&](const comm::DataAxes& axes) {
    // Only now: until all ranks have met nobody looks at the flag, and a signal should end the wait.
    train::catch_stop_signals();
    return train::run_job(job, axes) == train::RunEnd::kStopped ? 75 : 0;
  });
}

}  // namespace intarsia::cli
