// Every optimizer end to end on a small Llama: layouts agree, and a run that stops and goes on is the same run.
#include <filesystem>

#include "fixture_case.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/plan/optimizer_of_config.h"

namespace intarsia::parity {
namespace {

struct OptimizerCase {
  const char* algorithm;
  double lr;
  double tolerance;  // of a loss in another layout; steps by sign amplify the last bit of a gradient near 0
};

void PrintTo(const OptimizerCase& one, std::ostream* out) { *out << one.algorithm; }

// Which ranks hold what: a stage, in shard groups or with hpZ where these are given.
struct Placed {
  int ranks = 1, stage = 0;
  int shard_ranks = 0, hpz_ranks = 0;
};

std::string name_of(const Placed& placed) {
  return concat(placed.ranks, " ranks, stage ", placed.stage, ", shard groups ", placed.shard_ranks, ", hpZ ",
                placed.hpz_ranks);
}

train::TrainJob job_of(const OptimizerCase& one, const Placed& placed) {
  const auto [ranks, stage, shard_ranks, hpz_ranks] = placed;
  train::TrainJob job = make_job({.model = "llama-tied", .variant = "clip", .ranks = ranks, .stage = stage});
  config::TrainConfig config;
  config.optimizer.algorithm = one.algorithm;
  config.optimizer.lr = one.lr;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.momentum = 0.9;
  config.optimizer.ema_decay = 0.9;
  config.optimizer.groups = {{{"*norm*"}, 0.5 * one.lr, 0.0}};
  job.plan.optimizer = plan::optimizer_of(config, job.plan.model);
  job.plan.schedule = {};
  job.plan.schedule.base_lr = one.lr;
  job.plan.placement =
      plan::make_placement({.stage = stage, .ranks = ranks, .shard_ranks = shard_ranks, .hpz_ranks = hpz_ranks});
  return job;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> weights, averages;
};

// Steps `from` to `to`, from a checkpoint in `load` and to one in `root`, where these are given.
Outcome run(const OptimizerCase& one, const Placed& placed, std::int64_t from, std::int64_t to,
            const std::string& load = "", const std::string& root = "") {
  const train::TrainJob job = job_of(one, placed);
  Outcome result;
  comm::run_grid(
      job.plan.grid(),
      [&](const comm::DataAxes& axes) {
        comm::Communicator& axis = axes.world;
        train::Assembly assembly = train::assemble(job, axes);
        const data::Sampler sampler(job.sampler);
        std::int64_t position = 0;
        for (std::int64_t step = 0; step < from; ++step) position = sampler.next_window(position).value().end;
        if (!load.empty()) checkpoint::load_checkpoint(load, *assembly.engine, *assembly.optimizer);
        for (std::int64_t step = from; step < to; ++step) {
          const data::Window window = sampler.next_window(position).value();
          position = window.end;
          const auto next = [&](std::int64_t micro) {
            return data::make_batch(*job.dataset, sampler, window, axis.rank(), micro);
          };
          const double loss =
              train::train_step(*assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale,
                                sampler.micro_steps(window), next, [] { return optim::RankReport{}; })
                  .loss;
          if (axis.rank() == 0) result.losses.push_back(loss);
        }
        if (!root.empty())
          checkpoint::save_checkpoint({.root = root, .progress = {.step = to}}, *assembly.engine, *assembly.optimizer);
        const std::vector<at::Tensor> weights = gather_parameters(*assembly.engine, shard::Engine::What::kMaster);
        std::vector<at::Tensor> averages;
        for (std::size_t flat = 0; flat < assembly.engine->states().size(); ++flat)
          averages.push_back(assembly.optimizer->gather_average(flat).clone());
        if (axis.rank() == 0) result = {result.losses, weights, averages};
        axis.barrier({"", "copied"});
      },
      {.timeout_seconds = 60});
  return result;
}

void expect_close(const std::vector<double>& want, const std::vector<double>& have, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(want.size(), have.size());
  for (std::size_t step = 0; step < want.size(); ++step)
    EXPECT_NEAR(want[step], have[step], tolerance * want[step]) << what << ", step " << step;
}

class OptimizerRuns : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(OptimizerRuns, AgreeInEveryLayout) {
  const Outcome base = run(GetParam(), {1, 0}, 0, 5);
  for (const Placed& placed : {Placed{1, 3}, {2, 0}, {2, 3}, {4, 3, 2}, {4, 2, 2}, {4, 3, 0, 2}}) {
    const Outcome other = run(GetParam(), placed, 0, 5);
    expect_close(base.losses, other.losses, GetParam().tolerance, name_of(placed));
    for (std::size_t flat = 0; flat < base.averages.size(); ++flat) {
      const at::Tensor average = other.averages[flat].narrow(0, 0, base.averages[flat].size(0));
      EXPECT_LE((average - base.averages[flat]).norm().item<double>(), 1e-2 * average.norm().item<double>())
          << name_of(placed) << ", flat buffer " << flat;
    }
  }
}

TEST_P(OptimizerRuns, GoOnFromACheckpointAsIfNothingHadHappened) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / concat("optim-", GetParam().algorithm);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string root = (folder / "checkpoints").string(), saved = root + "/step-2";
  const Outcome whole = run(GetParam(), {2, 3}, 0, 5);
  run(GetParam(), {2, 3}, 0, 2, "", root);
  const Outcome resumed = run(GetParam(), {2, 3}, 2, 5, saved);
  const std::vector<double> rest(whole.losses.begin() + 2, whole.losses.end());
  EXPECT_EQ(resumed.losses, rest) << "the same layout: the same bits";
  for (std::size_t i = 0; i < whole.weights.size(); ++i)
    EXPECT_TRUE(at::equal(whole.weights[i], resumed.weights[i])) << i;
  for (std::size_t i = 0; i < whole.averages.size(); ++i)
    EXPECT_TRUE(at::equal(whole.averages[i], resumed.averages[i])) << i;
  for (const Placed& placed : {Placed{1, 0}, {4, 2}, {4, 3, 2}, {4, 3, 0, 2}})
    expect_close(rest, run(GetParam(), placed, 2, 5, saved).losses, GetParam().tolerance, name_of(placed));
  std::filesystem::remove_all(folder);
}

TEST_P(OptimizerRuns, GoOnFromACheckpointOfShardGroups) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / concat("optim-groups-", GetParam().algorithm);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const Placed& placed : {Placed{4, 3, 2}, {4, 3, 0, 2}}) {
    const std::string root = concat((folder / "checkpoints-").string(), placed.hpz_ranks), saved = root + "/step-2";
    const Outcome whole = run(GetParam(), placed, 0, 5);
    run(GetParam(), placed, 0, 2, "", root);
    const Outcome resumed = run(GetParam(), placed, 2, 5, saved);
    EXPECT_EQ(resumed.losses, (std::vector<double>{whole.losses.begin() + 2, whole.losses.end()})) << name_of(placed);
    for (std::size_t i = 0; i < whole.averages.size(); ++i)
      EXPECT_TRUE(at::equal(whole.averages[i], resumed.averages[i])) << name_of(placed) << ", flat buffer " << i;
    expect_close({whole.losses.begin() + 2, whole.losses.end()}, run(GetParam(), {1, 0}, 2, 5, saved).losses,
                 GetParam().tolerance, name_of(placed));
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerRuns,
                         ::testing::Values(OptimizerCase{"adamw", 3e-3, 1e-5}, OptimizerCase{"adam", 3e-3, 1e-5},
                                           OptimizerCase{"sgd", 0.1, 1e-5}, OptimizerCase{"lion", 1e-3, 1e-4},
                                           OptimizerCase{"adagrad", 1e-2, 1e-5}, OptimizerCase{"lamb", 1e-2, 1e-5},
                                           OptimizerCase{"adafactor", 1e-2, 1e-5}, OptimizerCase{"muon", 1e-2, 1e-4}),
                         [](const auto& one) { return std::string(one.param.algorithm); });

}  // namespace
}  // namespace intarsia::parity
