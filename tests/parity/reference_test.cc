// Logits, loss and gradients of every fixture against reference.safetensors.
#include "fixture_case.h"

namespace intarsia::parity {
namespace {

// Of tests/fixtures/hf, or of tests/fixtures/families by "families/NAME".
std::string folder_of(const std::string& model) {
  return model.starts_with("families/") ? "tests/fixtures/" + model : fixture(model);
}

class Reference : public testing::TestWithParam<Layout> {};

TEST_P(Reference, LogitsLossAndGradientsAgree) {
  const Layout& layout = GetParam();
  const std::string folder = folder_of(layout.model);
  const auto file = formats::SafetensorsFile::open(folder + "/reference.safetensors");
  const nlohmann::json reference = read_json(folder + "/reference.json");
  const at::Tensor ids = read_tensor(file, "input_ids"), labels = read_tensor(file, "labels");
  const plan::ModelSource source = plan::find_model(folder + "/model");
  config::TrainConfig config;
  config.run.ranks = layout.ranks;
  config.zero.stage = layout.stage;
  config.run.force_copy = layout.force_copy;
  config.batch.micro_batch_size = 2 / layout.ranks;
  config.gradient_clipping = 0;
  train::TrainJob job;
  job.model = source.config;
  job.model_directory = source.directory;
  job.dataset = std::make_shared<TensorDataset>(ids, labels);
  job.plan = plan::make_run_plan(config, source.config, ids.size(1), 1);

  comm::run_ranks(layout.ranks, [&](comm::Communicator& axis) {
    train::Assembly assembly = train::assemble(job, axis);
    const std::int64_t rows = 2 / layout.ranks, first = axis.rank() * rows;
    {
      const at::NoGradGuard no_grad;
      const at::Tensor logits =
          assembly.model->logits(assembly.engine->parameters(), assembly.engine.get(), ids.narrow(0, first, rows));
      EXPECT_LT((logits - read_tensor(file, "logits").narrow(0, first, rows)).abs().max().item<double>(), 1e-4);
    }
    std::vector<at::Tensor> gradients;
    const train::StepResult step = train::train_step(
        *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, 1,
        [&](std::int64_t) {
          std::vector<std::int64_t> indices;
          for (std::int64_t row = 0; row < rows; ++row) indices.push_back(first + row);
          return data::make_batch(*job.dataset, indices);
        },
        [] { return train::RankReport{}; },
        [&](double average) {
          gradients = gather_parameters(*assembly.engine, shard::Engine::What::kGradient);
          for (at::Tensor& gradient : gradients) gradient.mul_(average);
        });
    const double loss = reference["loss"];
    EXPECT_NEAR(step.loss, loss, 1e-5 * loss);
    EXPECT_EQ(step.tokens, reference["counted_tokens"].get<std::int64_t>());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::string& name = job.plan.model.params[i].name;
      const at::Tensor wanted = read_tensor(file, "grad." + name);
      const double largest = wanted.abs().max().item<double>();
      EXPECT_LT((gradients[i] - wanted).abs().max().item<double>(), std::max(1e-6, 1e-4 * largest)) << name;
    }
  });
}

// Every model alone and sharded, and every stage with two ranks.
std::vector<Layout> layouts() {
  const std::vector<std::string> models = {"llama-gqa",
                                           "llama-tied",
                                           "llama-rope-old",
                                           "llama-rope-v5",
                                           "llama-bf16",
                                           "mistral-full",
                                           "mistral-window",
                                           "qwen2-tied",
                                           "qwen3",
                                           "gpt2",
                                           "gpt2-hub",
                                           "families/rope-linear",
                                           "families/rope-dynamic",
                                           "families/rope-yarn-old",
                                           "families/rope-yarn-v5",
                                           "families/llama-biases",
                                           "families/qwen2-window",
                                           "families/qwen3-window",
                                           "families/gpt2-untied"};
  std::vector<Layout> all;
  for (std::size_t i = 0; i < models.size(); ++i) {
    all.push_back({models[i], "", 1, 0});
    all.push_back({models[i], "", 2, 3, i % 2 == 1});
    if (i % 3 < 2) all.push_back({models[i], "", 2, static_cast<int>(i % 3) + 1});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Models, Reference, testing::ValuesIn(layouts()));

}  // namespace
}  // namespace intarsia::parity
