// Autocast, and bf16 without fp32 masters, against loops that are written out: plain leaves, autograd and formulas.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>

#include "fixture_case.h"

namespace intarsia::parity {
namespace {

constexpr std::int64_t kSteps = 4;
constexpr double kLr = 0.002, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1;

// Updates of llama-gqa's first micro-batches, without clipping.
train::TrainJob make_job(const config::TrainConfig& precision, int ranks, int stage, bool copied = false) {
  train::TrainJob job = parity::make_job({.model = "llama-gqa", .ranks = ranks, .stage = stage, .steps = kSteps});
  config::TrainConfig config = precision;
  config.run.ranks = ranks;
  config.run.force_copy = copied;
  config.zero.stage = stage;
  config.batch = {job.plan.global_batch(), job.plan.micro_batch, 1};
  config.gradient_clipping = 0;
  config.optimizer.lr = kLr;
  config.optimizer.beta2 = kBeta2;
  config.optimizer.weight_decay = kDecay;
  job.plan = plan::make_run_plan(config, job.model, job.dataset->seq_len(), kSteps);
  return job;
}

Curve run(const train::TrainJob& job) {
  Curve curve;
  comm::run_ranks(job.plan.ranks,
                  [&](comm::Communicator& axis) {
                    Curve mine = run_curve(job, axis);
                    if (axis.rank() == 0) curve = std::move(mine);
                  },
                  {.force_copy = job.plan.force_copy, .timeout_seconds = 60});
  return curve;
}

// Enables autocast as a torch program does by hand.
class HandAutocast {
 public:
  explicit HandAutocast(std::optional<at::ScalarType> type) : active_(type.has_value()) {
    if (!active_) return;
    at::autocast::set_autocast_dtype(at::kCPU, *type);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~HandAutocast() {
    if (!active_) return;
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  HandAutocast(const HandAutocast&) = delete;
  HandAutocast& operator=(const HandAutocast&) = delete;

 private:
  bool active_;
};

struct HandLoop {
  at::ScalarType weights = at::kFloat, moments = at::kFloat;
  std::optional<at::ScalarType> autocast = {};
};

struct HandCurve {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
};

// One process, plain leaves; AdamW in fp32, its results rounded to the types in which weights and moments rest.
HandCurve run_by_hand(const HandLoop& loop) {
  config::TrainConfig fp32;
  const train::TrainJob job = make_job(fp32, 1, 0);
  const plan::ModelSpec& spec = job.plan.model;
  plan::RunPlan plain = job.plan;
  const auto model = models::make_model(job.model, plain);
  const auto files =
      train::open_weights({.config = job.model, .directory = job.model_directory, .weights = "", .name = ""}, plain);
  nn::Parameters parameters(spec, loop.weights == at::kFloat ? DType::kF32 : DType::kBF16);
  HandCurve curve;
  std::vector<at::Tensor> m, v;
  for (std::size_t i = 0; i < spec.params.size(); ++i) {
    const at::Tensor values = at::empty(spec.params[i].shape, at::kFloat);
    files->read(spec.params[i], {0, values.numel()}, values.mutable_data_ptr<float>());
    curve.weights.push_back(values.to(loop.weights).contiguous());
    parameters.attach(static_cast<int>(i), curve.weights.back());
    m.push_back(at::zeros(spec.params[i].shape, loop.moments));
    v.push_back(at::zeros(spec.params[i].shape, loop.moments));
  }
  const data::Sampler sampler(job.sampler);
  std::int64_t position = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const data::Window window = sampler.next_window(position).value();
    position = window.end;
    const data::Batch batch = data::make_batch(*job.dataset, sampler.samples_of(window, 0, 0));
    at::Tensor loss;
    {
      const HandAutocast autocast(loop.autocast);
      loss = models::causal_loss_sum(model->logits(parameters, nullptr, batch.input_ids), batch.labels);
    }
    const auto targets = static_cast<double>(batch.num_targets);
    curve.losses.push_back(loss.item<double>() / targets);
    torch::autograd::backward({loss}, {at::ones({})});
    const at::NoGradGuard no_grad;
    double square_sum = 0;
    for (std::size_t i = 0; i < curve.weights.size(); ++i) {
      at::Tensor& gradient = parameters.leaf(static_cast<int>(i)).mutable_grad();
      const at::Tensor g = gradient.to(at::kFloat) / targets;
      gradient.reset();
      square_sum += g.to(at::kDouble).square().sum().item<double>();
      const at::Tensor first = m[i].to(at::kFloat) * kBeta1 + g * (1 - kBeta1);
      const at::Tensor second = v[i].to(at::kFloat) * kBeta2 + g * g * (1 - kBeta2);
      m[i].copy_(first);
      v[i].copy_(second);
      const double k = static_cast<double>(step + 1);
      const at::Tensor change =
          first / (1 - std::pow(kBeta1, k)) / ((second / (1 - std::pow(kBeta2, k))).sqrt() + kEps);
      curve.weights[i].copy_(curve.weights[i].to(at::kFloat) * (1 - kLr * kDecay) - change * kLr);
    }
    curve.norms.push_back(std::sqrt(square_sum));
  }
  return curve;
}

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, (a[i].to(at::kFloat) - b[i].to(at::kFloat)).abs().max().item<double>());
  return largest;
}

class Autocast : public testing::TestWithParam<config::Precision> {};

TEST_P(Autocast, TrainsLikeAPlainLoopUnderTorchsAutocast) {
  const bool half = GetParam() == config::Precision::kFp16;
  const HandCurve hand = run_by_hand({.autocast = half ? at::kHalf : at::kBFloat16});
  config::TrainConfig config;
  config.autocast = GetParam();
  if (half) config.loss_scale = {.mode = config::LossScaleConfig::Mode::kStatic, .value = 1024};
  const Curve one = run(make_job(config, 1, 0));
  EXPECT_EQ(one.steps[0].loss, hand.losses[0]);
  for (const Curve& curve : {one, run(make_job(config, 2, 3)), run(make_job(config, 2, 2))}) {
    for (std::size_t step = 0; step < kSteps; ++step) {
      // Shapes differ with the ranks, so that a value beside a rounding border of 16 bits may fall to the other side.
      EXPECT_NEAR(curve.steps[step].loss, hand.losses[step], 5e-4 * hand.losses[step]) << step;
      EXPECT_NEAR(curve.steps[step].grad_norm, hand.norms[step], 5e-3 * hand.norms[step]) << step;
    }
    EXPECT_EQ(curve.weights[0].scalar_type(), at::kFloat);
  }
  // Adam's first updates are nearly the sign of a gradient: an element whose sign is noise moves by 2 lr a step.
  EXPECT_LT(largest_difference(one.weights, hand.weights), 2 * kLr * kSteps);
  EXPECT_NE(run_by_hand({}).losses[0], hand.losses[0]) << "autocast changes nothing, so the comparison says nothing";
}

INSTANTIATE_TEST_SUITE_P(Types, Autocast, testing::Values(config::Precision::kBf16, config::Precision::kFp16),
                         [](const auto& type) { return type.param == config::Precision::kFp16 ? "fp16" : "bf16"; });

class WithoutMasters : public testing::TestWithParam<bool> {};

TEST_P(WithoutMasters, TrainsLikeAPlainLoopOnBf16Weights) {
  const bool states = GetParam();
  const HandCurve hand = run_by_hand({.weights = at::kBFloat16, .moments = states ? at::kBFloat16 : at::kFloat});
  config::TrainConfig config;
  config.precision = config::Precision::kBf16;
  config.bf16_masters = true;
  config.bf16_optimizer_states = states;
  const Curve one = run(make_job(config, 1, 0));
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(one.steps[step].loss, hand.losses[step], 2e-4 * hand.losses[step]) << step;
    EXPECT_NEAR(one.steps[step].grad_norm, hand.norms[step], 5e-3 * hand.norms[step]) << step;
  }
  // The same logits; ours sums them tile by tile, the loop by ATen's cross-entropy: fp32's last bits may differ.
  EXPECT_NEAR(one.steps[0].loss, hand.losses[0], 1e-6 * hand.losses[0]);
  std::int64_t different = 0, all = 0;
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(at::equal(one.weights[i], one.weights[i].to(at::kBFloat16).to(at::kFloat))) << "weights are bf16";
    different += one.weights[i].ne(hand.weights[i].to(at::kFloat)).sum().item<std::int64_t>();
    all += one.weights[i].numel();
  }
  EXPECT_LT(static_cast<double>(different), 0.01 * static_cast<double>(all));

  // What masters would have kept is lost: the weights are not those of a run with masters, rounded.
  config.bf16_masters = config.bf16_optimizer_states = false;
  const Curve with_masters = run(make_job(config, 1, 0));
  double lost = 0;
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    lost += one.weights[i].ne(with_masters.weights[i].to(at::kBFloat16).to(at::kFloat)).sum().item<double>();
  EXPECT_GT(lost, 0.02 * static_cast<double>(all));
}

TEST_P(WithoutMasters, StagesAndWaysOfSharingGiveTheSameBits) {
  config::TrainConfig config;
  config.precision = config::Precision::kBf16;
  config.bf16_masters = true;
  config.bf16_optimizer_states = GetParam();
  const Curve base = run(make_job(config, 2, 0));
  for (const auto& [stage, copied] : {std::pair(1, false), {2, false}, {3, false}, {3, true}}) {
    const Curve other = run(make_job(config, 2, stage, copied));
    for (std::size_t step = 0; step < kSteps; ++step) EXPECT_EQ(other.steps[step].loss, base.steps[step].loss);
    EXPECT_EQ(largest_difference(other.weights, base.weights), 0) << "stage " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(States, WithoutMasters, testing::Bool(),
                         [](const auto& states) { return states.param ? "bf16" : "fp32"; });

}  // namespace
}  // namespace intarsia::parity
