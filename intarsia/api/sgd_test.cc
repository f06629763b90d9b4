// Plain SGD has no state that hides a wrong factor: a module with a tied parameter against torch's own optimizer. And
// what of the configuration is refused for other people's modules.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "intarsia/api/testing_net.h"
#include "intarsia/base/error.h"

namespace intarsia::api {
namespace {

constexpr std::int64_t kMicroBatches = 4, kSteps = 3;
constexpr double kLr = 0.3;

Config config_of(int stage, const char* more = "") {
  return Config::from_text(concat(R"({"train_batch_size": )", kMicroBatches * kSamples,
                                  R"(, "train_micro_batch_size_per_gpu": )", kSamples,
                                  R"(, "gradient_clipping": 0, "zero_optimization": {"stage": )", stage,
                                  R"(}, "optimizer": {"type": "SGD", "params": {"lr": )", kLr, R"(}})", more, "}"));
}

Curve run_plain() {
  OddNet net = seeded_net(1);
  std::vector<at::Tensor> trained;  // a tied parameter once
  for (const auto& item : net->named_parameters())
    if (item.value().requires_grad() && item.key() != "head") trained.push_back(item.value());
  torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(kLr));
  Curve curve;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double loss = 0;
    for (std::int64_t micro = 0; micro < kMicroBatches; ++micro) {
      const Batch batch = batch_of(step * kMicroBatches + micro);
      const at::Tensor mean = mean_loss(net->forward(batch.ids), batch.labels) / kMicroBatches;
      mean.backward();
      loss += mean.item<double>();
    }
    optimizer.step();
    curve.losses.push_back(loss);
  }
  for (const auto& item : net->named_parameters()) curve.weights.emplace_back(item.key(), item.value().detach());
  return curve;
}

Curve run_engine(int ranks, int stage, bool copied) {
  Curve curve;
  comm::run_ranks(ranks,
                  [&](comm::Communicator& axis) {
                    auto engine = initialize(seeded_net(1), config_of(stage), {.ranks = &axis});
                    Curve mine;
                    for (std::int64_t step = 0; step < kSteps; ++step) {
                      for (std::int64_t micro = 0; micro < engine.accumulation(); ++micro) {
                        const Batch batch = batch_of(step * kMicroBatches + micro * ranks + axis.rank());
                        engine.backward(mean_loss(engine.forward(batch.ids), batch.labels));
                        engine.step();
                      }
                      mine.losses.push_back(engine.last_step().loss);
                    }
                    for (const plan::ParamSpec& param : engine.plan().model.params)
                      mine.weights.emplace_back(param.name, engine.gather(param.name));
                    if (axis.rank() == 0) curve = mine;
                  },
                  {.force_copy = copied, .timeout_seconds = 60});
  return curve;
}

TEST(SgdWithATiedParameter, EqualsPlainTorch) {
  const Curve plain = run_plain();
  ASSERT_GT(std::abs(plain.losses.back() - plain.losses.front()), 0.01) << "nothing moves";
  for (const auto& [ranks, stage, copied] :
       {std::tuple(1, 0, false), {2, 0, false}, {2, 1, false}, {2, 2, false}, {2, 3, false}, {4, 3, true}}) {
    SCOPED_TRACE(concat(ranks, " ranks, stage ", stage));
    const Curve found = run_engine(ranks, stage, copied);
    for (std::size_t step = 0; step < kSteps; ++step)
      EXPECT_NEAR(found.losses[step], plain.losses[step], 1e-6 * plain.losses[step]) << step;
    for (const auto& [name, value] : found.weights)
      for (const auto& [other, expected] : plain.weights) {
        if (other == name && value.numel() > 0) {
          EXPECT_LT((value - expected).abs().max().item<double>(), 2e-6) << name;
        }
      }
  }
}

std::string refusal_of(const Config& config, int ranks) {
  std::string said;
  try {
    comm::run_ranks(
        ranks, [&](comm::Communicator& axis) { auto engine = initialize(seeded_net(1), config, {.ranks = &axis}); });
  } catch (const Error& error) {
    said = error.what();
  }
  return said;
}

TEST(RefusedForModules, AutocastIsNamedWithWhatToUse) {
  const std::string said = refusal_of(config_of(3, R"(, "torch_autocast": {"enabled": true})"), 2);
  EXPECT_NE(said.find("torch_autocast"), std::string::npos) << said;
  EXPECT_NE(said.find("at::autocast in forward"), std::string::npos) << said;
  EXPECT_EQ(refusal_of(config_of(3, R"(, "torch_autocast": {"enabled": false})"), 2), "");
}

TEST(RefusedForModules, BlocksAreCountedForOurModelsOnly) {
  EXPECT_NE(refusal_of(config_of(3, R"(, "activation_checkpointing": {"number_checkpoints": 2})"), 2)
                .find("number_checkpoints"),
            std::string::npos);
  EXPECT_NE(refusal_of(config_of(3, R"(, "intarsia": {"recompute": "2"})"), 2).find("recompute"), std::string::npos);
}

// Ranks that a program made itself are one group; processes of a launcher may form several (Examples.shard_groups).
TEST(RefusedForModules, ShardGroupsOfGivenRanksAreNamed) {
  const std::string said = refusal_of(config_of(3, R"(, "intarsia": {"shard_size": 2})"), 4);
  EXPECT_NE(said.find("shard groups of 2"), std::string::npos) << said;
  EXPECT_NE(said.find("intarsia launch --ranks 4"), std::string::npos) << said;
}

}  // namespace
}  // namespace intarsia::api
