// The end of a window on a model of two weights whose gradients are known, in every stage.
#include "intarsia/optim/update.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "intarsia/comm/run_ranks.h"

namespace intarsia::optim {
namespace {

plan::RunPlan two_weights(int ranks, int stage, double lr) {
  plan::RunPlan plan;
  plan.model.units = {{.name = "pair", .params = {0}}};
  plan.model.params = {{.name = "w", .shape = {2}, .init = plan::Init::kOnes}};
  plan.ranks = ranks;
  plan.stage = stage;
  plan.placement = plan::placement_of_stage(stage);
  plan.flats = plan::layout_units(plan.model, ranks);
  plan.compute_dtype = DType::kF16;
  plan.seq_len = 1;  // loss_divisor 1
  plan.optimizer.kind = plan::OptimizerKind::kSgd;
  plan.schedule.base_lr = lr;
  return plan;
}

struct Ended {
  std::vector<StepResult> steps;
  std::vector<double> scales_after;
  at::Tensor weights;
};

// Steps whose true gradient is `gradient`, the same on every rank.
Ended run(const plan::RunPlan& plan, std::int64_t steps, std::vector<float> gradient) {
  std::vector<Ended> ended(static_cast<std::size_t>(plan.ranks));
  comm::run_ranks(plan.ranks, [&](comm::Communicator& axis) {
    shard::Engine engine(plan, axis, plan::RandomWeights(1));
    const auto optimizer = make_optimizer(plan, engine.states(), axis);
    LossScale loss_scale(plan.loss_scale);
    Ended& mine = ended[static_cast<std::size_t>(axis.rank())];
    for (std::int64_t step = 0; step < steps; ++step) {
      engine.start_window();
      engine.pre_forward(0);
      const at::Tensor loss = (engine.parameters().leaf(0) * at::tensor(gradient).to(at::kHalf)).sum().to(at::kFloat);
      engine.post_forward(0, true);
      engine.pre_backward(0);
      engine.backward(loss, loss_scale.scale());
      const WindowSums sums{.losses = {loss.item<double>()}, .targets = 1};
      mine.steps.push_back(finish_step(engine, *optimizer, loss_scale, sums, [] { return RankReport{}; }));
      mine.scales_after.push_back(loss_scale.scale());
    }
    mine.weights = engine.gather(0, shard::Engine::What::kMaster).narrow(0, 0, 2).clone();
  });
  for (const Ended& other : ended) EXPECT_TRUE(at::equal(other.weights, ended[0].weights));
  return ended[0];
}

struct Placed {
  int ranks, stage;
};
void PrintTo(const Placed& placed, std::ostream* out) { *out << placed.ranks << " ranks, stage " << placed.stage; }
class Updates : public testing::TestWithParam<Placed> {};

// behaviours, kind 1: true norm 5, backward at scale 1024, the scale goes to 2048 in that step: 5; applied 0.6 and 0.8.
TEST_P(Updates, UnscaleByTheScaleOfTheBackward) {
  plan::RunPlan plan = two_weights(GetParam().ranks, GetParam().stage, 0.125);
  plan.gradient_clipping = 1;
  plan.loss_scale = {.dynamic = true, .initial = 1024, .window = 1};
  const Ended ended = run(plan, 2, {3, 4});
  EXPECT_EQ(ended.scales_after, (std::vector<double>{1024, 2048}));
  for (const StepResult& step : ended.steps) {
    EXPECT_EQ(step.loss_scale, 1024);
    EXPECT_DOUBLE_EQ(step.grad_norm, 5);
  }
  EXPECT_NEAR(ended.weights[0].item<double>(), 1 - 2 * 0.125 * 0.6, 1e-6);
  EXPECT_NEAR(ended.weights[1].item<double>(), 1 - 2 * 0.125 * 0.8, 1e-6);
}

// behaviours, kind 3, and acceptance: a scale that is far too high halves until the gradients fit, the same in every
// stage, and leaves no trace in weights, updates or rate.
TEST_P(Updates, OverflowsLowerTheScaleAndNothingElse) {
  plan::RunPlan plan = two_weights(GetParam().ranks, GetParam().stage, 0.125);
  plan.loss_scale = {.dynamic = true, .initial = 1024, .hysteresis = 3};
  const Ended ended = run(plan, 9, {3000, 1});  // 3,000 x 16 is the largest that fp16 holds
  const std::vector<double> after = {1024, 1024, 512, 256, 128, 64, 32, 16, 16};
  EXPECT_EQ(ended.scales_after, after);
  for (std::size_t step = 0; step < after.size(); ++step) {
    EXPECT_EQ(ended.steps[step].skipped, step + 1 < after.size()) << step;
    EXPECT_FALSE(ended.steps[step].bad) << step;
  }
  plan.loss_scale = {.initial = 16};
  EXPECT_TRUE(at::equal(ended.weights, run(plan, 1, {3000, 1}).weights));
}

TEST_P(Updates, AnOverflowThatNoScaleCanHelpIsBad) {
  plan::RunPlan plan = two_weights(GetParam().ranks, GetParam().stage, 0.125);
  plan.loss_scale = {.initial = 1024};
  const Ended ended = run(plan, 2, {3000, 1});
  for (const StepResult& step : ended.steps) EXPECT_TRUE(step.skipped && step.bad);
  EXPECT_TRUE(at::equal(ended.weights, at::ones({2})));
}

INSTANTIATE_TEST_SUITE_P(Stages, Updates,
                         testing::Values(Placed{1, 0}, Placed{2, 0}, Placed{2, 1}, Placed{2, 2}, Placed{2, 3}));

}  // namespace
}  // namespace intarsia::optim
