// A vocabulary of 10 rows that becomes one of 12 (--resize-vocab), in every layout.
#include "fixture_case.h"
#include "intarsia/plan/resized_vocab.h"

namespace intarsia::parity {
namespace {

constexpr std::int64_t kRows = 10, kMore = 12, kBatch = 4, kLength = 8;

formats::HfConfig small_model(bool tied) {
  formats::HfConfig config = plan::find_model(fixture("llama-gqa/model")).config;
  config.vocab_size = kRows;
  config.tie_word_embeddings = tied;
  return config;
}

struct Cell {
  bool tied = false;
  int ranks = 1, stage = 0;
  bool copied = false;
  bool reproducible = false;
};

struct Outcome {
  Curve curve;
  std::vector<at::Tensor> first;          // parameters before training
  std::vector<std::int64_t> held;         // elements of sharded parameters on each rank
  std::vector<at::Tensor> first_of_rank;  // the embedding as each rank gathers it
};

Outcome run_cell(const Cell& cell) {
  const formats::HfConfig before = small_model(cell.tied);
  const plan::ModelSpec in_files = plan::model_spec(before);
  formats::HfConfig after = before;
  after.vocab_size = kMore;

  config::TrainConfig config;
  config.run.ranks = cell.ranks;
  config.zero.stage = cell.stage;
  config.run.reproducible = cell.reproducible;
  config.batch = {kBatch, kBatch / cell.ranks, 1};
  if (cell.reproducible) config.run.logical_micro_batches = kBatch;
  config.optimizer.lr = 1e-2;
  const plan::RunPlan plan = plan::make_run_plan(config, after, kLength, 3);

  // All tokens come, also the new ones.
  const at::Tensor ids = at::arange(kBatch * kLength, at::kLong).mul(7).remainder(kMore).view({kBatch, kLength});
  const TensorDataset dataset(ids, ids);
  const data::SamplerOptions sampling{
      .num_samples = kBatch,
      .shuffle = false,
      .micro_batch = plan.micro_batch,
      .accumulation = plan.accumulation,
      .ranks = cell.ranks,
      .logical = cell.reproducible ? std::optional(plan.logical_order()) : std::nullopt};
  Outcome outcome;
  outcome.held.resize(static_cast<std::size_t>(cell.ranks));
  outcome.first_of_rank.resize(static_cast<std::size_t>(cell.ranks));
  comm::run_ranks(
      cell.ranks,
      [&](comm::Communicator& axis) {
        const plan::ResizedWeights weights(std::make_unique<plan::RandomWeights>(5), in_files);
        shard::Engine engine(plan, axis, weights);
        const auto rank = static_cast<std::size_t>(axis.rank());
        std::vector<at::Tensor> first = gather_parameters(engine, shard::Engine::What::kMaster);
        outcome.first_of_rank[rank] = first[0];
        for (const plan::FlatLayout& flat : plan.flats)
          outcome.held[rank] += plan::resting(flat, plan.placement.params, plan.grid(), axis.rank()).size();
        const auto model = models::make_model(after, plan);
        const auto optimizer = optim::make_optimizer(plan, engine.states(), axis);
        optim::LossScale loss_scale(plan.loss_scale);
        const data::Sampler sampler(sampling);
        Curve curve;
        std::int64_t position = 0;
        for (std::int64_t step = 0; step < plan.steps; ++step) {
          const data::Window window = sampler.next_window(position).value();
          position = window.end;
          curve.steps.push_back(train::train_step(
              engine, *model, *optimizer, loss_scale, sampler.micro_steps(window),
              [&](std::int64_t micro) { return data::make_batch(dataset, sampler, window, axis.rank(), micro); },
              [] { return train::RankReport{}; }));
        }
        curve.weights = gather_parameters(engine, shard::Engine::What::kMaster);
        if (rank != 0) return;
        outcome.curve = std::move(curve);
        outcome.first = std::move(first);
      },
      {.force_copy = cell.copied, .timeout_seconds = 60});
  return outcome;
}

// behaviours, kind 5: "stage 3, vocabulary 10 to 12 on 2 ranks".
TEST(Resize, TenRowsBecomeTwelveOnTwoRanks) {
  const Outcome it = run_cell({.ranks = 2, .stage = 3});
  const plan::ModelSpec in_files = plan::model_spec(small_model(false));
  const plan::RandomWeights files(5);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const auto index = static_cast<std::size_t>(in_files.find(name).value());
    const plan::ParamSpec& old = in_files.params[index];
    const at::Tensor now = it.first[index];
    ASSERT_EQ(now.sizes(), (at::IntArrayRef{kMore, old.shape[1]})) << name;
    at::Tensor wanted = at::empty(old.shape);
    files.read(old, {0, old.numel()}, wanted.mutable_data_ptr<float>());
    EXPECT_TRUE(at::equal(now.narrow(0, 0, kRows), wanted)) << name << ": rows 0 to 9 are unchanged";
    EXPECT_TRUE(at::equal(now[10], now[11]));
    EXPECT_TRUE(at::allclose(now[10], wanted.mean(0), 1e-6, 1e-9)) << name;
  }
  EXPECT_TRUE(at::equal(it.first_of_rank[0], it.first_of_rank[1])) << "new rows are equal on all ranks";
  const Outcome alone = run_cell({});
  for (const std::int64_t held : it.held)
    EXPECT_NEAR(static_cast<double>(held), static_cast<double>(alone.held[0]) / 2,
                static_cast<double>(plan::kShardBlock) * 4)
        << "each rank stores about half";
}

TEST(Resize, TrainsAsOneProcessDoes) {
  for (const bool tied : {false, true}) {
    const Outcome alone = run_cell({.tied = tied});
    EXPECT_FALSE(at::equal(alone.curve.weights[0][10], alone.curve.weights[0][11])) << "new rows are trained";
    for (const int stage : {0, 1, 2, 3})
      for (const int ranks : {2, 4}) {
        const Outcome many = run_cell({.tied = tied, .ranks = ranks, .stage = stage, .copied = ranks == 4});
        for (std::size_t step = 0; step < 3; ++step)
          EXPECT_NEAR(many.curve.steps[step].loss, alone.curve.steps[step].loss, 1e-6 * alone.curve.steps[step].loss)
              << "stage " << stage << " ranks " << ranks;
        for (std::size_t i = 0; i < alone.curve.weights.size(); ++i)
          EXPECT_TRUE(at::allclose(many.curve.weights[i], alone.curve.weights[i], 1e-4, 3e-5))
              << "stage " << stage << " ranks " << ranks << " parameter " << i;
      }
  }
}

TEST(Resize, ReproducibleRunsHaveTheSameBits) {
  const Outcome alone = run_cell({.tied = true, .reproducible = true});
  for (const int stage : {1, 3}) {
    const Outcome many = run_cell({.tied = true, .ranks = 4, .stage = stage, .reproducible = true});
    for (std::size_t i = 0; i < alone.curve.weights.size(); ++i)
      EXPECT_TRUE(at::equal(many.curve.weights[i], alone.curve.weights[i])) << "stage " << stage << " parameter " << i;
  }
}

}  // namespace
}  // namespace intarsia::parity
