// What a run does beside its steps, on the test device: every optimizer, checkpoints, evaluation, text.
#include <filesystem>

#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/nn/recompute/recompute.h"
#include "intarsia/plan/optimizer_of_config.h"
#include "intarsia/tensor/memory_meter.h"
#include "intarsia/train/evaluate.h"
#include "intarsia/train/generate.h"
#include "on_test_device.h"
#include "tests/parity/fixture_case.h"

namespace intarsia::parity {
namespace {

constexpr std::int64_t kSteps = 3;

Layout layout_on(DeviceKind device, int ranks = 2, DType dtype = DType::kF32) {
  return {.model = "llama-tied",
          .variant = "clip",
          .ranks = ranks,
          .stage = 3,
          .force_copy = true,
          .dtype = dtype,
          .steps = kSteps,
          .device = device};
}

train::TrainJob job_of(const std::string& algorithm, DeviceKind device) {
  train::TrainJob job = make_job(layout_on(device));
  config::TrainConfig config;
  config.optimizer.algorithm = algorithm;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.momentum = 0.9;
  config.optimizer.ema_decay = 0.9;
  job.plan.optimizer = plan::optimizer_of(config, job.plan.model);
  job.plan.schedule = {};
  job.plan.schedule.base_lr = 1e-2;
  return job;
}

Curve run_job(const train::TrainJob& job) {
  Curve result;
  comm::run_ranks(job.plan.ranks,
                  [&](comm::Communicator& axis) {
                    const Curve mine = run_curve(job, axis);
                    if (axis.rank() == 0) result = mine;
                  },
                  {.force_copy = true, .device = job.plan.device, .timeout_seconds = 60});
  return result;
}

void expect_equal(const Curve& a, const Curve& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t step = 0; step < a.steps.size(); ++step) {
    EXPECT_EQ(a.steps[step].loss, b.steps[step].loss) << "step " << step;
    EXPECT_EQ(a.steps[step].grad_norm, b.steps[step].grad_norm) << "step " << step;
  }
  for (std::size_t i = 0; i < a.weights.size(); ++i) EXPECT_TRUE(at::equal(a.weights[i], b.weights[i])) << i;
}

class DeviceOptimizers : public testing::TestWithParam<const char*> {};

TEST_P(DeviceOptimizers, GiveTheBitsOfTheCpu) {
  expect_equal(run_job(job_of(GetParam(), DeviceKind::kTest)), run_job(job_of(GetParam(), DeviceKind::kCpu)));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceOptimizers,
                         testing::Values("adamw", "sgd", "lion", "adagrad", "lamb", "adafactor", "muon"),
                         [](const auto& one) { return std::string(one.param); });

TEST(DeviceRun, Bf16StatesAreUpdatedAsOnTheCpu) {
  const auto job = [](DeviceKind device) {
    train::TrainJob made = job_of("adamw", device);
    made.plan.optimizer.state_dtype = DType::kBF16;
    return made;
  };
  expect_equal(run_job(job(DeviceKind::kTest)), run_job(job(DeviceKind::kCpu)));
}

// A checkpoint does not know what it was written on.
TEST(DeviceRun, ACheckpointGoesOnOnTheOtherDevice) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "device-checkpoint";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string root = (folder / "checkpoints").string();
  const auto weights = [&](DeviceKind device, bool save) {
    std::vector<at::Tensor> result;
    const train::TrainJob job = job_of("adamw", device);
    comm::run_ranks(
        2,
        [&](comm::Communicator& axis) {
          train::Assembly assembly = train::assemble(job, axis);
          if (save) {
            for (shard::FlatState& state : assembly.engine->states())
              if (state.master.defined()) state.master.add_(0.5);
            assembly.engine->publish();
            checkpoint::save_checkpoint({.root = root, .progress = {.step = 2}}, *assembly.engine, *assembly.optimizer);
          } else {
            checkpoint::load_checkpoint(root + "/step-2", *assembly.engine, *assembly.optimizer);
          }
          const std::vector<at::Tensor> all = gather_parameters(*assembly.engine, shard::Engine::What::kMaster);
          if (axis.rank() == 0) result = all;
        },
        {.force_copy = true, .device = device, .timeout_seconds = 60});
    return result;
  };
  for (const DeviceKind from : {DeviceKind::kCpu, DeviceKind::kTest}) {
    const std::vector<at::Tensor> saved = weights(from, true);
    const std::vector<at::Tensor> loaded =
        weights(from == DeviceKind::kCpu ? DeviceKind::kTest : DeviceKind::kCpu, false);
    for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(at::equal(saved[i], loaded[i])) << i;
    std::filesystem::remove_all(root);
  }
  std::filesystem::remove_all(folder);
}

TEST(DeviceRun, EvaluatesAndWritesTextAsOnTheCpu) {
  const auto outcome = [](DeviceKind device) {
    std::pair<double, std::vector<std::int64_t>> result;
    const train::TrainJob job = make_job(layout_on(device, 1));
    comm::run_ranks(1,
                    [&](comm::Communicator& axis) {
                      train::Assembly assembly = train::assemble(job, axis);
                      result.first =
                          train::evaluate(*assembly.engine, *assembly.model, *job.dataset, 2, nullptr,
                                          [&](std::int64_t, const at::Tensor& rows) { EXPECT_TRUE(rows.is_cpu()); })
                              .loss;
                      models::KeyValueCache cache;
                      train::generate(*assembly.engine, *assembly.model, 16, {1, 2, 3},
                                      {.max_new_tokens = 4, .stop_ids = {}}, cache, [&](std::int64_t id) {
                                        result.second.push_back(id);
                                        return true;
                                      });
                    },
                    {.device = device});
    return result;
  };
  EXPECT_EQ(outcome(DeviceKind::kTest), outcome(DeviceKind::kCpu));
}

// The backward, recomputation in it included, runs on a thread of autograd's: what it takes and spends is the rank's.
TEST(DeviceRun, TheBackwardsMemoryAndTimeAreTheRanks) {
  tensor::install_memory_meter();
  Layout layout = layout_on(DeviceKind::kTest);
  layout.recompute = true;
  const train::TrainJob job = make_job(layout);
  comm::run_ranks(
      2,
      [&](comm::Communicator& axis) {
        tensor::set_memory_rank(40 + axis.rank());
        const std::int64_t before = nn::recompute_time().runs;
        run_curve(job, axis);
        EXPECT_GT(nn::recompute_time().runs, before);
        EXPECT_GT(tensor::read_memory(40 + axis.rank()).peak[static_cast<std::size_t>(tensor::MemoryCategory::kReduce)],
                  0);
      },
      {.force_copy = true, .device = DeviceKind::kTest, .timeout_seconds = 60});
  EXPECT_EQ(tensor::read_memory(40).total, 0) << "all was given back";
}

}  // namespace
}  // namespace intarsia::parity
