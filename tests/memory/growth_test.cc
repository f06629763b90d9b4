// Peak memory does not creep: not over steps, not over saves, in any placement.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "intarsia/checkpoint/save.h"
#include "states.h"

namespace intarsia::memory {
namespace {

struct Placed {
  const char* name;
  int stage;
  int shard_size, hpz;
  bool copied, ahead, reproducible;
};
void PrintTo(const Placed& placed, std::ostream* out) { *out << placed.name; }

formats::HfConfig tiny_model() {
  formats::HfConfig model = plan::preset("llama-34m").value();
  model.hidden_size = 32;
  model.intermediate_size = 48;
  model.num_attention_heads = model.num_key_value_heads = 2;
  model.head_dim = 16;
  model.num_hidden_layers = 2;
  model.vocab_size = 64;
  return model;
}

train::TrainJob make_job(const Placed& placed) {
  config::TrainConfig config;
  config.run.ranks = 4;
  config.run.shard_size = placed.shard_size;
  config.run.force_copy = placed.copied;
  config.run.reproducible = placed.reproducible;
  config.zero.stage = placed.stage;
  if (placed.hpz > 0) config.zero.hpz_partition_size = placed.hpz;
  config.precision = config::Precision::kBf16;
  config.batch = {8, 1, 2};
  train::TrainJob job;
  job.model = tiny_model();
  job.random_weights = true;
  job.plan = plan::make_run_plan(config, job.model, 8, 300);
  job.plan.overlap = placed.ahead;
  return job;
}

class Growth : public testing::TestWithParam<Placed> {
 protected:
  // `body` on every rank, which calls step() for an update.
  void on_ranks(const std::function<void(train::Assembly&, const std::function<void()>&)>& body) {
    tensor::install_memory_meter();
    const train::TrainJob job = make_job(GetParam());
    comm::run_grid(job.plan.grid(),
                   [&](const comm::DataAxes& axes) {
                     tensor::set_memory_rank(axes.world.rank());
                     train::Assembly assembly = train::assemble(job, axes);
                     body(assembly, [&] {
                       train::train_step(
                           *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale,
                           job.plan.accumulation,
                           [&](std::int64_t) {
                             return data::Batch{at::ones({1, 8}, at::kLong), at::ones({1, 8}, at::kLong), {}, 7};
                           },
                           [] { return train::RankReport{}; });
                     });
                   },
                   {.force_copy = job.plan.force_copy, .timeout_seconds = 120});
  }
};

TEST_P(Growth, NoneBetweenStep3AndStep300) {
  on_ranks([](train::Assembly& assembly, const std::function<void()>& step) {
    const int rank = assembly.engine->world().rank();
    for (int i = 0; i < 3; ++i) step();
    const tensor::MemoryReading early = tensor::read_memory(rank);
    for (int i = 3; i < 300; ++i) step();
    const tensor::MemoryReading late = tensor::read_memory(rank);
    EXPECT_GT(early.total_peak, 0);
    EXPECT_EQ(late.total_peak, early.total_peak) << "rank " << rank;
    EXPECT_EQ(late.total, early.total) << "rank " << rank;
  });
}

TEST_P(Growth, NoneOver50Saves) {
  std::string root = testing::TempDir() + "growth-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  on_ranks([&root](train::Assembly& assembly, const std::function<void()>& step) {
    const int rank = assembly.engine->world().rank();
    const auto save = [&] {
      step();
      checkpoint::save_checkpoint({.root = root + "/checkpoints", .progress = {}, .keep = 2}, *assembly.engine,
                                  *assembly.optimizer);
    };
    for (int i = 0; i < 3; ++i) save();
    const tensor::MemoryReading early = tensor::read_memory(rank);
    for (int i = 3; i < 50; ++i) save();
    const tensor::MemoryReading late = tensor::read_memory(rank);
    EXPECT_EQ(late.total_peak, early.total_peak) << "rank " << rank;
    EXPECT_EQ(late.total, early.total) << "rank " << rank;
  });
  std::filesystem::remove_all(root);
}

INSTANTIATE_TEST_SUITE_P(Copied, Growth, testing::Values(Placed{"stage 3, ahead", 3, 0, 0, true, true, false}));
INSTANTIATE_TEST_SUITE_P(
    SlowEveryPlacement, Growth,
    testing::Values(Placed{"stage 0", 0, 0, 0, false, false, false}, Placed{"stage 1", 1, 0, 0, false, false, false},
                    Placed{"stage 2", 2, 0, 0, false, false, false}, Placed{"stage 3", 3, 0, 0, false, false, false},
                    Placed{"stage 3, copied", 3, 0, 0, true, false, false},
                    Placed{"stage 3, ahead", 3, 0, 0, true, true, false},
                    Placed{"hybrid", 3, 2, 0, false, false, false},
                    Placed{"hybrid ZeRO-2", 2, 2, 0, false, false, false}, Placed{"hpZ", 3, 0, 2, false, false, false},
                    Placed{"stage 3, reproducible", 3, 0, 0, false, false, true}));

}  // namespace
}  // namespace intarsia::memory
