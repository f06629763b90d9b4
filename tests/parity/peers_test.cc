// The losses of FSDP2 and DeepSpeed on the same weights and batches (tests/fixtures/peers/README.md).
#include <ATen/CPUGeneratorImpl.h>

#include "fixture_case.h"

namespace intarsia::parity {
namespace {

struct PeerCase {
  const char* model;
  int stage;
  bool force_copy;
};

void PrintTo(const PeerCase& peer, std::ostream* out) {
  *out << peer.model << " stage " << peer.stage << (peer.force_copy ? " copied" : " mapped");
}

// The tokens of bench/peers/common.py: torch's generator gives the same numbers in both languages.
at::Tensor samples_of(const nlohmann::json& peers, const char* model, std::int64_t vocabulary) {
  const std::int64_t rows = peers["steps"].get<std::int64_t>() * peers["ranks"].get<std::int64_t>() *
                            peers["micro_batch"].get<std::int64_t>();
  const at::Tensor ids = at::randint(0, vocabulary, {rows, peers["seq"].get<std::int64_t>()},
                                     at::detail::createCPUGenerator(1000), at::TensorOptions().dtype(at::kLong));
  const nlohmann::json& expected = peers["samples"][model];
  for (std::int64_t i = 0; i < ids.size(1); ++i) EXPECT_EQ(ids[0][i].item<std::int64_t>(), expected["first"][i]);
  EXPECT_EQ(ids.sum().item<std::int64_t>(), expected["sum"]);
  return ids;
}

train::TrainJob make_job(const nlohmann::json& peers, const PeerCase& peer) {
  train::TrainJob job;
  const plan::ModelSource source = plan::find_model(fixture(std::string(peer.model) + "/model"));
  job.model = source.config;
  job.model_directory = source.directory;
  const at::Tensor ids = samples_of(peers, peer.model, job.model.vocab_size);
  job.dataset = std::make_shared<TensorDataset>(ids, ids);

  config::TrainConfig config;
  config.run.ranks = peers["ranks"];
  config.run.force_copy = peer.force_copy;
  config.zero.stage = peer.stage;
  const std::int64_t micro_batch = peers["micro_batch"];
  config.batch = {micro_batch * config.run.ranks, micro_batch, 1};
  config.gradient_clipping = peers["clip"];
  const nlohmann::json& optimizer = peers["optimizer"];
  config.optimizer.lr = optimizer["lr"];
  config.optimizer.beta1 = optimizer["betas"][0];
  config.optimizer.beta2 = optimizer["betas"][1];
  config.optimizer.eps = optimizer["eps"];
  config.optimizer.weight_decay = optimizer["weight_decay"];
  job.plan = plan::make_run_plan(config, job.model, ids.size(1), peers["steps"]);
  job.sampler = {.num_samples = ids.size(0),
                 .shuffle = false,
                 .micro_batch = micro_batch,
                 .accumulation = 1,
                 .ranks = static_cast<int>(config.run.ranks)};
  return job;
}

class Peers : public testing::TestWithParam<PeerCase> {};

TEST_P(Peers, HaveTheLossesOfThisEngine) {
  const nlohmann::json peers = read_json("tests/fixtures/peers/curves.json");
  const train::TrainJob job = make_job(peers, GetParam());
  Curve curve;
  comm::run_ranks(static_cast<int>(job.plan.ranks),
                  [&](comm::Communicator& axis) {
                    Curve mine = run_curve(job, axis);
                    if (axis.rank() == 0) curve = std::move(mine);
                  },
                  {.force_copy = GetParam().force_copy, .timeout_seconds = 60});
  const nlohmann::json& curves = peers["curves"][GetParam().model];
  ASSERT_EQ(curves.size(), 4U);
  for (const auto& [system, losses] : curves.items()) {
    SCOPED_TRACE(system);
    ASSERT_EQ(losses.size(), curve.steps.size());
    for (std::size_t step = 0; step < losses.size(); ++step)
      EXPECT_NEAR(curve.steps[step].loss, losses[step].get<double>(), 1e-5 * losses[step].get<double>()) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Peers,
                         testing::Values(PeerCase{"llama-gqa", 2, false}, PeerCase{"llama-gqa", 3, false},
                                         PeerCase{"llama-gqa", 3, true}, PeerCase{"llama-tied", 2, false},
                                         PeerCase{"llama-tied", 3, false}, PeerCase{"llama-tied", 3, true}));

}  // namespace
}  // namespace intarsia::parity
