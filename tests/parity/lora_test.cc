// Adapters against PEFT (tests/fixtures/lora), and in every layout against one process.
#include "intarsia/plan/lora.h"

#include <map>
#include <tuple>

#include "fixture_case.h"
#include "intarsia/plan/directory_weights.h"
#include "intarsia/plan/merged_weights.h"

namespace intarsia::parity {
namespace {

std::string lora_fixture(const std::string& path) { return "tests/fixtures/lora/" + path; }

// The base's weights, and of adapters what PEFT saved.
class FixtureWeights final : public plan::WeightSource {
 public:
  FixtureWeights(const std::string& name, const plan::ModelSpec& model)
      : model_(model),
        base_(fixture(name + "/model"), plan::without_adapters(model)),
        adapter_(formats::SafetensorsFile::open(lora_fixture(name + "/adapter/adapter_model.safetensors"))) {}
  void read(const plan::ParamSpec& param, plan::Range range, float* out) const override {
    if (!plan::is_adapter(param)) return base_.read(param, range, out);
    formats::read_as_f32(adapter_, adapter_.at(plan::peft_name(model_, param.name)), range.begin, range.end, out);
  }

 private:
  const plan::ModelSpec& model_;
  plan::DirectoryWeights base_;
  formats::SafetensorsFile adapter_;
};

struct LoraCase {
  std::string name;
  int ranks = 1;
  int stage = 0;
  bool copy = false;
  plan::Recompute recompute = plan::Recompute::kNone;
};

void PrintTo(const LoraCase& lora, std::ostream* out) {
  *out << lora.name << " ranks " << lora.ranks << " stage " << lora.stage << (lora.copy ? " copied" : "");
}

class Lora : public testing::TestWithParam<LoraCase> {};

// Logits, gradients of A and B and the losses of five updates.
TEST_P(Lora, ComputesWhatPeftComputes) {
  const LoraCase& c = GetParam();
  const auto file = formats::SafetensorsFile::open(lora_fixture(c.name + "/reference.safetensors"));
  const nlohmann::json reference = read_json(lora_fixture(c.name + "/reference.json"));
  const at::Tensor ids = read_tensor(file, "input_ids"), labels = read_tensor(file, "labels");
  const plan::ModelSource source = plan::find_model(fixture(c.name + "/model"));
  config::TrainConfig config;
  config.run.ranks = c.ranks;
  config.zero.stage = c.stage;
  config.run.force_copy = c.copy;
  config.batch.micro_batch_size = 2 / c.ranks;
  config.gradient_clipping = 0;
  config.optimizer.lr = reference["lr"].get<double>();
  config.optimizer.beta2 = 0.95;
  config.optimizer.weight_decay = 0.1;
  config.lora.r = reference["r"].get<std::int64_t>();
  config.lora.alpha = reference["alpha"].get<double>();
  config.lora.targets = reference["targets"].get<std::vector<std::string>>();
  plan::RunPlan plan = plan::make_run_plan(config, source.config, ids.size(1), 5);
  plan.recompute.policy = c.recompute;
  const plan::LoraPlan lora = plan::lora_plan(config.lora, plan.model);
  const TensorDataset dataset(ids, labels);

  comm::run_ranks(
      c.ranks,
      [&](comm::Communicator& axis) {
        const FixtureWeights weights(c.name, plan.model);
        shard::Engine engine(plan, axis, weights);
        const auto model = models::make_model(source.config, plan, lora);
        const auto optimizer = optim::make_optimizer(plan, engine.states(), axis);
        optim::LossScale loss_scale(plan.loss_scale);
        const std::int64_t rows = 2 / c.ranks, first = axis.rank() * rows;
        {
          const at::NoGradGuard no_grad;
          const at::Tensor logits = model->logits(engine.parameters(), &engine, ids.narrow(0, first, rows));
          EXPECT_LT((logits - read_tensor(file, "logits").narrow(0, first, rows)).abs().max().item<double>(), 1e-4);
        }
        std::map<std::string, at::Tensor> gradients;
        const auto take_gradients = [&](double average) {
          for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
            if (!engine.states()[flat].layout->trainable) continue;
            const at::Tensor whole = engine.gather(flat, shard::Engine::What::kGradient);
            for (const plan::ParamSlot& slot : engine.states()[flat].layout->slots) {
              const plan::ParamSpec& param = plan.model.params[static_cast<std::size_t>(slot.param)];
              gradients[plan::peft_name(plan.model, param.name)] =
                  whole.narrow(0, slot.offset, slot.numel).view(param.shape).mul(average);
            }
          }
        };
        for (std::size_t step = 0; step < 5; ++step) {
          const train::StepResult result = train::train_step(
              engine, *model, *optimizer, loss_scale, 1,
              [&](std::int64_t) {
                std::vector<std::int64_t> indices;
                for (std::int64_t row = 0; row < rows; ++row) indices.push_back(first + row);
                return data::make_batch(dataset, indices);
              },
              [] { return train::RankReport{}; },
              step == 0 ? train::GradientHook(take_gradients) : train::GradientHook());
          const auto loss = reference["curve"][step].get<double>();
          EXPECT_NEAR(result.loss, loss, 2e-5 * loss) << "update " << step + 1;
          EXPECT_EQ(result.tokens, reference["counted_tokens"].get<std::int64_t>());
        }
        std::size_t wanted_gradients = 0;
        for (const formats::TensorInfo& tensor : file.tensors()) {
          if (!tensor.name.starts_with("grad.")) continue;
          ++wanted_gradients;
          const at::Tensor wanted = read_tensor(file, tensor.name);
          ASSERT_TRUE(gradients.contains(tensor.name.substr(5))) << tensor.name;
          const at::Tensor difference = gradients[tensor.name.substr(5)] - wanted;
          const double largest = wanted.abs().max().item<double>();
          EXPECT_LT(difference.abs().max().item<double>(), std::max(1e-6, 1e-4 * largest)) << tensor.name;
        }
        EXPECT_EQ(gradients.size(), wanted_gradients) << "nothing but adapters has a gradient";
      },
      {.force_copy = c.copy, .timeout_seconds = 60});
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Lora,
                         testing::Values(LoraCase{"llama-gqa"}, LoraCase{"llama-gqa", 2, 3, true},
                                         LoraCase{"llama-gqa", 1, 0, false, plan::Recompute::kFull},
                                         LoraCase{"llama-gqa", 2, 2, false, plan::Recompute::kSelective},
                                         LoraCase{"llama-tied"}, LoraCase{"llama-tied", 2, 3},
                                         LoraCase{"qwen2-tied", 2, 1}, LoraCase{"gpt2"}, LoraCase{"gpt2", 2, 3},
                                         LoraCase{"gpt2-hub", 2, 2}));

// eval --adapter: the model with merged weights.
TEST(LoraMerged, LogitsAreThoseOfTheAdaptedModel) {
  for (const char* name : {"llama-gqa", "llama-tied", "qwen2-tied", "gpt2", "gpt2-hub"}) {
    const auto file = formats::SafetensorsFile::open(lora_fixture(concat(name, "/reference.safetensors")));
    const plan::ModelSource source = plan::find_model(fixture(concat(name, "/model")));
    const plan::RunPlan plan = plan::make_inference_plan(source.config, 1, DType::kF32);
    comm::run_ranks(1, [&](comm::Communicator& axis) {
      const plan::MergedWeights weights(std::make_unique<plan::DirectoryWeights>(source.directory, plan.model),
                                        lora_fixture(concat(name, "/adapter")), plan.model);
      shard::Engine engine(plan, axis, weights);
      const at::NoGradGuard no_grad;
      const at::Tensor logits =
          models::make_model(source.config, plan)->logits(engine.parameters(), &engine, read_tensor(file, "input_ids"));
      const at::Tensor wanted = read_tensor(file, "logits");
      EXPECT_LT((logits - wanted).abs().max().item<double>(), 1e-5 * wanted.abs().max().item<double>()) << name;
    });
  }
}

// A bf16 base with fp32 masters of the adapters only.
train::TrainJob reproducible_job(int ranks, int stage, plan::Recompute recompute, double dropout) {
  const auto batches = formats::SafetensorsFile::open(fixture("llama-tied/batches.safetensors"));
  at::Tensor ids = read_tensor(batches, "input_ids"), labels = read_tensor(batches, "labels");
  ids = ids.reshape({-1, ids.size(-1)});
  labels = labels.reshape({-1, labels.size(-1)});
  train::TrainJob job;
  const plan::ModelSource source = plan::find_model(fixture("llama-tied/model"));
  job.model = source.config;
  job.model_directory = source.directory;
  job.dataset = std::make_shared<TensorDataset>(ids, labels);
  config::TrainConfig config;
  config.run.ranks = ranks;
  config.zero.stage = stage;
  config.run.reproducible = true;
  config.run.logical_micro_batches = 4;
  config.precision = config::Precision::kBf16;
  config.batch = {4, 1, 4 / ranks};
  config.optimizer.lr = 0.01;
  config.lora = {.r = 4, .alpha = 8, .dropout = dropout, .targets = {"q_proj", "v_proj", "down_proj"}};
  job.plan = plan::make_run_plan(config, job.model, ids.size(1), 4);
  job.plan.recompute.policy = recompute;
  job.lora = plan::lora_plan(config.lora, job.plan.model);
  job.sampler = {.num_samples = ids.size(0),
                 .shuffle = true,
                 .micro_batch = job.plan.micro_batch,
                 .accumulation = job.plan.accumulation,
                 .ranks = ranks};
  job.sampler.logical = job.plan.logical_order();
  return job;
}

Curve run_reproducible(int ranks, int stage, plan::Recompute recompute = plan::Recompute::kNone, double dropout = 0) {
  const train::TrainJob job = reproducible_job(ranks, stage, recompute, dropout);
  Curve curve;
  comm::run_ranks(ranks,
                  [&](comm::Communicator& axis) {
                    Curve mine = run_curve(job, axis);
                    if (axis.rank() == 0) curve = std::move(mine);
                  },
                  {.timeout_seconds = 60});
  return curve;
}

TEST(LoraLayouts, HaveTheSameBits) {
  const Curve one = run_reproducible(1, 0);
  const plan::ModelSpec model = reproducible_job(1, 0, plan::Recompute::kNone, 0).plan.model;
  EXPECT_LT(one.steps.back().loss, one.steps.front().loss);
  const plan::DirectoryWeights base(fixture("llama-tied/model"), plan::without_adapters(model));
  for (std::size_t i = 0; i < model.params.size(); ++i) {
    const plan::ParamSpec& param = model.params[i];
    if (plan::is_adapter(param)) {
      EXPECT_GT(one.weights[i].abs().max().item<float>(), 0) << param.name;
      continue;
    }
    at::Tensor before = at::empty(param.shape, at::kFloat);
    base.read(param, {0, param.numel()}, before.data_ptr<float>());
    EXPECT_TRUE(at::equal(one.weights[i].to(at::kFloat), before.to(at::kBFloat16).to(at::kFloat))) << param.name;
  }
  struct Way {
    int ranks, stage;
    plan::Recompute recompute;
  };
  for (const Way& way :
       {Way{1, 0, plan::Recompute::kFull}, Way{2, 0, plan::Recompute::kNone}, Way{2, 3, plan::Recompute::kNone},
        Way{4, 0, plan::Recompute::kNone}, Way{4, 3, plan::Recompute::kFull}}) {
    const Curve other = run_reproducible(way.ranks, way.stage, way.recompute);
    for (std::size_t step = 0; step < one.steps.size(); ++step) {
      EXPECT_EQ(other.steps[step].loss, one.steps[step].loss) << way.ranks << " ranks, stage " << way.stage;
      EXPECT_EQ(other.steps[step].grad_norm, one.steps[step].grad_norm);
    }
    for (std::size_t i = 0; i < one.weights.size(); ++i)
      EXPECT_TRUE(at::equal(other.weights[i], one.weights[i])) << model.params[i].name;
  }
}

TEST(LoraLayouts, HaveTheSameBitsWithDropout) {
  const Curve one = run_reproducible(1, 0, plan::Recompute::kNone, 0.25), without = run_reproducible(1, 0);
  EXPECT_EQ(one.steps[0].loss, without.steps[0].loss) << "B is zero at first";
  EXPECT_NE(one.steps[0].grad_norm, without.steps[0].grad_norm);
  EXPECT_NE(one.steps.back().loss, without.steps.back().loss);
  using plan::Recompute;
  for (const auto& [ranks, stage, recompute] :
       std::vector<std::tuple<int, int, Recompute>>{{1, 0, Recompute::kFull},
                                                    {1, 0, Recompute::kSelective},
                                                    {2, 2, Recompute::kNone},
                                                    {4, 3, Recompute::kFull}}) {
    const Curve other = run_reproducible(ranks, stage, recompute, 0.25);
    for (std::size_t step = 0; step < one.steps.size(); ++step) {
      EXPECT_EQ(other.steps[step].loss, one.steps[step].loss) << ranks << " ranks, stage " << stage;
      EXPECT_EQ(other.steps[step].grad_norm, one.steps[step].grad_norm);
    }
    for (std::size_t i = 0; i < one.weights.size(); ++i) EXPECT_TRUE(at::equal(other.weights[i], one.weights[i])) << i;
  }
}

// An evaluation between updates, and the samples that a run writes, drop nothing.
TEST(LoraLayouts, DropNothingOutsideOfTrainingSteps) {
  const train::TrainJob job = reproducible_job(1, 0, plan::Recompute::kNone, 0.5);
  comm::run_ranks(1, [&](comm::Communicator& axis) {
    train::Assembly assembly = train::assemble(job, axis);
    const data::Sampler sampler(job.sampler);
    const data::Window window = sampler.next_window(0).value();
    const data::Batch batch = data::make_batch(*job.dataset, sampler, window, 0, 0);
    const auto step = [&] {
      train::train_step(
          *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, sampler.micro_steps(window),
          [&](std::int64_t micro) { return data::make_batch(*job.dataset, sampler, window, 0, micro); },
          [] { return train::RankReport{}; });
    };
    const auto logits = [&] {
      const at::NoGradGuard no_grad;
      return assembly.model->logits(assembly.engine->parameters(), assembly.engine.get(), batch.input_ids);
    };
    step();
    const at::Tensor after = logits();
    EXPECT_TRUE(at::equal(logits(), after));
    const train::TrainJob plain = reproducible_job(1, 0, plan::Recompute::kNone, 0);
    const auto model = models::make_model(plain.model, plain.plan, plain.lora);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(model->logits(assembly.engine->parameters(), assembly.engine.get(), batch.input_ids), after));
    assembly.model->set_sample_places(batch.places);
    EXPECT_FALSE(at::equal(logits(), after)) << "with places they are dropped";
  });
}

}  // namespace
}  // namespace intarsia::parity
