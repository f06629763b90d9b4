// Modules of one's own against a plain torch loop in the same process: losses, gradient norms and weights, in every
// stage and on several ranks.
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "intarsia/api/testing_net.h"
#include "intarsia/base/error.h"

namespace intarsia::api {
namespace {

constexpr std::int64_t kMicroBatches = 8, kSteps = 3;  // micro-batches of a step, all ranks together

struct Layout {
  int ranks = 1;
  int stage = 0;
  bool copy = false;
  std::string dtype = "fp32";
  bool recompute = false;
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.ranks << " ranks, stage " << layout.stage << (layout.copy ? ", copied" : ", mapped");
}

Config config_of(const Layout& layout) {
  return Config::from_text(concat(
      R"({"train_batch_size": )", kMicroBatches * kSamples, R"(, "train_micro_batch_size_per_gpu": )", kSamples,
      R"(, "gradient_clipping": 0.5, "zero_optimization": {"stage": )", layout.stage, R"(}, "bf16": {"enabled": )",
      layout.dtype == "bf16" ? "true" : "false", R"(}, "intarsia": {"recompute": ")",
      layout.recompute ? "full" : "none",
      R"("}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.9], "eps": 1e-6}}})"));
}

Curve run_layout(const Layout& layout) {
  Curve curve;
  comm::run_ranks(layout.ranks,
                  [&](comm::Communicator& axis) {
                    // Only rank 0's values count.
                    auto engine = initialize(seeded_net(1 + axis.rank()), config_of(layout), {.ranks = &axis});
                    std::vector<double> losses, norms;
                    for (std::int64_t step = 0; step < kSteps; ++step)
                      for (std::int64_t micro = 0; micro < engine.accumulation(); ++micro) {
                        const Batch batch = batch_of(step * kMicroBatches + micro * axis.size() + axis.rank());
                        engine.backward(mean_loss(engine.forward(batch.ids), batch.labels));
                        if (!engine.step()) continue;
                        losses.push_back(engine.last_step().loss);
                        norms.push_back(engine.last_step().grad_norm);
                      }
                    Curve mine{.losses = losses, .norms = norms, .weights = {}};
                    for (const plan::ParamSpec& param : engine.plan().model.params)
                      mine.weights.emplace_back(param.name, engine.gather(param.name));
                    if (axis.rank() == 0) curve = mine;
                  },
                  {.force_copy = layout.copy, .timeout_seconds = 60});
  return curve;
}

Curve run_plain() {
  OddNet net = seeded_net(1);
  // In C++ a tied parameter is registered twice, and torch's optimizer would update it twice.
  std::vector<at::Tensor> trained;
  for (const auto& item : net->named_parameters())
    if (item.value().requires_grad() && item.key() != "head") trained.push_back(item.value());
  torch::optim::AdamW optimizer(trained,
                                torch::optim::AdamWOptions(0.01).betas({0.8, 0.9}).eps(1e-6).weight_decay(0.1));
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
    for (const at::Tensor& parameter : trained)
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    curve.losses.push_back(loss);
    curve.norms.push_back(torch::nn::utils::clip_grad_norm_(trained, 0.5));
    optimizer.step();
  }
  for (const auto& item : net->named_parameters()) curve.weights.emplace_back(item.key(), item.value().detach());
  return curve;
}

at::Tensor weight(const Curve& curve, const std::string& name) {
  for (const auto& [key, value] : curve.weights)
    if (key == name) return value;
  ADD_FAILURE() << "no " << name;
  return {};
}

void expect_close(const Curve& expected, const Curve& found, double tolerance) {
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], tolerance * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(found.norms[step], expected.norms[step], tolerance * expected.norms[step]) << "step " << step;
  }
  for (const auto& [name, value] : found.weights) {
    const at::Tensor other = weight(expected, name);
    EXPECT_EQ(value.sizes(), other.sizes()) << name;
    if (value.numel() > 0) {
      EXPECT_LT((value - other).abs().max().item<double>(), 10 * tolerance) << name;
    }
  }
}

class Modules : public testing::TestWithParam<Layout> {};

// behaviours, kind 5: 9 rows on 8 ranks, tied embedding and head of 5 rows, 0 rows, frozen and unused parameters; kind
// 2: parameters without gradient count as zero.
TEST_P(Modules, TrainLikeThePlainLoop) {
  static const Curve plain = run_plain();
  EXPECT_EQ(weight(plain, "none.weight").sizes(), (std::vector<std::int64_t>{0, kWidth}));
  expect_close(plain, run_layout(GetParam()), 2e-6);
}
INSTANTIATE_TEST_SUITE_P(Layouts, Modules,
                         testing::Values(Layout{1, 0}, Layout{1, 3}, Layout{2, 0}, Layout{2, 1}, Layout{2, 2},
                                         Layout{2, 3}, Layout{2, 3, true}, Layout{4, 0, true}, Layout{4, 1},
                                         Layout{4, 2, true}, Layout{4, 3}, Layout{4, 3, true}, Layout{8, 2},
                                         Layout{8, 3, true}));

TEST(RecomputedModules, GiveTheSameBits) {
  const Curve kept = run_layout({.ranks = 2, .stage = 3}),
              again = run_layout({.ranks = 2, .stage = 3, .recompute = true});
  EXPECT_EQ(kept.losses, again.losses);
  EXPECT_EQ(kept.norms, again.norms);
  for (const auto& [name, value] : kept.weights) EXPECT_TRUE(at::equal(value, weight(again, name))) << name;
}

TEST(ModulesIn16Bit, StagesAgreeAndMappedEqualsCopied) {
  const Curve base = run_layout({2, 0, false, "bf16"}), mapped = run_layout({2, 3, false, "bf16"});
  const Curve copied = run_layout({2, 3, true, "bf16"});
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(base.losses[step], mapped.losses[step], 1e-6);
    EXPECT_EQ(mapped.losses[step], copied.losses[step]);
    EXPECT_EQ(mapped.norms[step], copied.norms[step]);
  }
  for (const auto& [name, value] : mapped.weights) EXPECT_TRUE(at::equal(value, weight(copied, name))) << name;
  EXPECT_LT(mapped.losses.back(), mapped.losses.front());
}

}  // namespace
}  // namespace intarsia::api
