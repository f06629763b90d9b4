#include "intarsia/api/assemble.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/config/effective.h"
#include "intarsia/config/resolve.h"
#include "intarsia/launch/environment.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/tensor/device.h"

namespace intarsia::api {
namespace {

// Keys of the "intarsia" section that mean something to a program with a loop of its own.
constexpr std::array kHonoured = {"ranks",        "batch_size",
                                  "accumulation", "steps",
                                  "lr",           "weight_decay",
                                  "betas",        "eps",
                                  "optimizer",    "warmup",
                                  "schedule",     "min_lr_ratio",
                                  "lr_schedule",  "clip",
                                  "dtype",        "stage",
                                  "strategy",     "seed",
                                  "keep",         "log_every",
                                  "threads",      "recompute",
                                  "no_decay_1d",  "backend",
                                  "force_copy",   "comm_timeout_seconds",
                                  "reproducible", "logical_micro_batches",
                                  "shard_size",   "reshard_after_forward",
                                  "no_sync",      "device"};

// The others are said by name: what the program's own loop does, and what is not built for other people's modules.
std::vector<config::Problem> refusals_of(const config::Resolved& resolved) {
  std::vector<config::Problem> problems = config::check_trainable(resolved);
  const auto refuse = [&problems](const std::string& path, const std::string& message) {
    config::Problem problem;
    problem.path = path;
    problem.message = message;
    problem.suggestion = "remove it";
    problems.push_back(problem);
  };
  for (const config::FlagSpec& flag : config::run_flags()) {
    if (std::ranges::find(kHonoured, flag.key) != kHonoured.end()) continue;
    const auto origin = resolved.origins.find("intarsia." + flag.key);
    if (origin != resolved.origins.end() && origin->second != "default")
      refuse(origin->first,
             concat("is a setting of `intarsia train`; here the program's own loop does this (", origin->second, ")"));
  }
  return problems;
}

config::Resolved read_config(const Config& config, int ranks) {
  config::ResolveInput input;
  input.file = config.path();
  input.text = config.text();
  input.sets = config.sets();
  input.ranks = ranks;
  input.for_training = true;
  config::Resolved resolved = config::resolve(input);
  if (auto refusals = refusals_of(resolved); !refusals.empty()) throw config::ConfigError(std::move(refusals));
  INTARSIA_CHECK(kConfig, resolved.config.run.ranks == ranks, "intarsia.ranks is ", resolved.config.run.ranks,
                 ", but this program runs on ", ranks,
                 " ranks; remove the key, or start it with intarsia launch --ranks ", resolved.config.run.ranks,
                 " -- PROGRAM");
  INTARSIA_CHECK(kConfig, !config::waits_for_length(resolved.config.scheduler), "the schedule ",
                 resolved.config.scheduler.type,
                 " depends on the number of updates, which a program does not say; give ", "intarsia.steps");
  return resolved;
}

comm::Rendezvous rendezvous_of(const launch::RankEnvironment& environment) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return {.rank = environment.rank,
          .world = environment.world,
          .local_rank = environment.local_rank.value_or(0),
          .host = host.data(),
          .master_address = environment.master_address,
          .master_port = environment.master_port,
          .store_served = environment.store_served,
          .store_prefix = environment.store_prefix};
}

// The parameters of rank 0 become everybody's, as DeepSpeed does it.
void share_values(const nn::Inspected& module, comm::Communicator& world) {
  const at::NoGradGuard no_grad;
  for (std::size_t param = 0; param < module.leaves.size(); ++param) {
    const at::Tensor value = module.leaves[param][0].detach();
    if (value.is_meta()) continue;
    const at::Tensor dense = value.contiguous().view({-1});
    world.broadcast(dense, 0, {module.model.params[param].name, "first values"})->wait();
    if (!value.is_contiguous()) value.copy_(dense.view(value.sizes()));
  }
}

void note_buffers(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) {
      INTARSIA_CHECK(kUsage, !item.value().is_meta(), "buffer ", item.key(),
                     " is on the meta device, and only parameters are filled; give it its values before wrapping");
      names.push_back(item.key());
    }
  if (!names.empty())
    log_note(concat("buffers are the module's own, neither made equal over ranks nor saved: ", join(names)));
}

}  // namespace

Assembly assemble(torch::nn::Module& module, const Config& config, const Options& options) {
  std::optional<launch::RankEnvironment> environment;
  if (options.ranks == nullptr) {
    environment = launch::read_environment(launch::process_variables(), std::to_string(::getppid()));
    if (environment && environment->world == 1) environment.reset();
  }
  const int ranks = options.ranks != nullptr ? options.ranks->size() : environment ? environment->world : 1;
  const config::Resolved resolved = read_config(config, ranks);

  Assembly assembly;
  assembly.module = nn::inspect(module, {.policy = options.units, .init = options.init});
  // A program says itself what its losses are sums of, so nothing is known of a micro-batch's targets: the divisor
  // is 1.
  plan::RunPlan plan = plan::make_run_plan(resolved.config, assembly.module.model, 1, resolved.config.run.steps);
  assembly.micro_batch_size = plan.micro_batch;
  plan.micro_batch = 1;
  INTARSIA_CHECK(kUnsupported, !plan.autocast,
                 "torch_autocast: a program's own modules are not wrapped by it; use at::autocast in forward, or bf16");
  INTARSIA_CHECK(
      kUnsupported, plan.recompute.policy != plan::Recompute::kEveryK && plan.recompute.checkpoints == 0,
      "recompute K and number_checkpoints count a model's blocks, which units of one's own are not; use full, "
      "selective or none");
  INTARSIA_CHECK(kUsage, options.ranks == nullptr || plan.grid().replicas == 1,
                 "Options::ranks are one shard group; shard groups of ", plan.grid().shards,
                 " ranks need a launcher: intarsia launch --ranks ", ranks, " -- PROGRAM");
  if (environment) {
    INTARSIA_CHECK(kUnsupported,
                   resolved.origins.at("intarsia.backend") == "default" || plan.backend == plan::CommBackend::kGloo,
                   "intarsia.backend: processes that a launcher starts meet over gloo; remove the key");
    plan.backend = plan::CommBackend::kGloo;
  }
  assembly.plan = std::make_unique<plan::RunPlan>(std::move(plan));
  assembly.config_json = config::resolved_config_json(resolved).dump(2);
  if (resolved.config.steps_per_print || resolved.origins.at("intarsia.log_every") != "default")
    assembly.log_every = resolved.config.run.log_every;
  if (resolved.origins.at("intarsia.keep") != "default") assembly.keep = resolved.config.run.keep;
  if (resolved.config.run.threads > 0) {
    at::set_num_threads(resolved.config.run.threads);
  } else if (assembly.plan->reproducible) {
    at::set_num_threads(1);  // libraries may split sums by threads
  }

  const bool is_first = options.ranks != nullptr ? options.ranks->rank() == 0 : !environment || environment->rank == 0;
  if (is_first) {
    for (const config::Report& report : resolved.reports) log_note(report.text());
    note_buffers(module);
  }
  // Ranks that were given have chosen their devices.
  if (options.ranks == nullptr)
    tensor::use_device(assembly.plan->device, environment ? environment->local_rank.value_or(0) : 0);
  if (options.ranks == nullptr)
    assembly.mesh = comm::Mesh::create(*assembly.plan, environment ? rendezvous_of(*environment) : comm::Rendezvous{});
  const comm::DataAxes axes = assembly.mesh ? assembly.mesh->data() : comm::DataAxes(*options.ranks);
  share_values(assembly.module, axes.world);
  const plan::RandomWeights random(assembly.plan->seed);
  const nn::ModuleWeights weights(assembly.module, random);
  assembly.engine = std::make_unique<shard::Engine>(
      *assembly.plan, axes, weights,
      nn::Parameters(assembly.plan->model, assembly.plan->compute_dtype, std::move(assembly.module.leaves),
                     tensor::device_of(assembly.plan->device)));
  assembly.optimizer = optim::make_optimizer(*assembly.plan, assembly.engine->states(), axes);
  assembly.loss_scale = std::make_unique<optim::LossScale>(assembly.plan->loss_scale);
  return assembly;
}

}  // namespace intarsia::api
