// --pack isolate: a document packed with others is computed as if it were alone.
#include <numeric>

#include "fixture_case.h"
#include "intarsia/data/dataset.h"
#include "intarsia/formats/token_file.h"

namespace intarsia::parity {
namespace {

class Isolate : public testing::TestWithParam<const char*> {};

constexpr std::int64_t kSequence = 20;

// Documents of many lengths, shorter and longer than the sliding window of 6, as a token file.
std::string write_documents() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = concat(info->test_suite_name(), "_", info->name());
  std::ranges::replace(name, '/', '_');
  const std::string path = testing::TempDir() + name + ".bin";
  formats::TokenFileWriter writer(path, {.vocab_size = 300});
  std::int32_t token = 1;
  for (const std::int64_t length : {9, 3, 8, 14, 2, 4, 20, 5, 5, 5}) {
    std::vector<std::int32_t> document;
    for (std::int64_t i = 0; i < length; ++i) document.push_back(token = token * 37 % 293 + 3);
    writer.append_document(document, {});
  }
  writer.commit();
  return path;
}

train::TrainJob job_of(const std::string& model, const std::string& data, data::Pack pack, int ranks, int stage) {
  train::TrainJob job;
  const plan::ModelSource source = plan::find_model(fixture(model + "/model"));
  job.model = source.config;
  job.model_directory = source.directory;
  job.dataset = data::open_dataset({.paths = {data}, .seq_len = kSequence, .pack = pack});
  config::TrainConfig config;
  config.run.ranks = ranks;
  config.zero.stage = stage;
  config.batch = {.train_batch_size = 1, .micro_batch_size = 1, .accumulation = 1};
  config.gradient_clipping = 0;
  job.plan = plan::make_run_plan(config, source.config, job.dataset->seq_len(), 1);
  return job;
}

// The mean loss of each document by the model, from whatever samples it stands in.
std::vector<double> document_losses(const train::TrainJob& job, comm::Communicator& axis, bool with_positions) {
  const at::NoGradGuard no_grad;
  train::Assembly assembly = train::assemble(job, axis);
  std::vector<double> losses;
  for (std::int64_t index = 0; index < job.dataset->num_samples(); ++index) {
    const std::vector<std::int64_t> one{index};
    const data::Batch batch = data::make_batch(*job.dataset, one);
    const at::Tensor logits =
        with_positions ? assembly.model->logits(assembly.engine->parameters(), assembly.engine.get(), batch.input_ids,
                                                batch.positions)
                       : assembly.model->logits(assembly.engine->parameters(), assembly.engine.get(), batch.input_ids);
    const at::Tensor positions =
        batch.positions.defined() ? batch.positions[0] : at::arange(kSequence, at::kLong).narrow(0, 0, logits.size(1));
    for (std::int64_t begin = 0, end = 1; begin < positions.size(0); begin = end++) {
      while (end < positions.size(0) && positions[end].item<std::int64_t>() != 0) ++end;
      const at::Tensor labels = batch.labels.narrow(1, begin, end - begin);
      const std::int64_t targets =
          labels.narrow(1, 1, labels.size(1) - 1).ne(data::kNotCounted).sum().item<std::int64_t>();
      if (targets == 0) continue;  // what fills up
      const at::Tensor sum = models::causal_loss_sum(logits.narrow(1, begin, end - begin), labels);
      losses.push_back(sum.item<double>() / static_cast<double>(targets));
    }
  }
  return losses;
}

TEST_P(Isolate, EachDocumentsLossIsItsLossAlone) {
  const std::string path = write_documents();
  const train::TrainJob packed = job_of(GetParam(), path, data::Pack::kIsolate, 1, 0);
  const train::TrainJob alone = job_of(GetParam(), path, data::Pack::kOff, 1, 0);
  ASSERT_LT(packed.dataset->num_samples(), alone.dataset->num_samples());
  comm::run_ranks(1, [&](comm::Communicator& axis) {
    const std::vector<double> together = document_losses(packed, axis, true);
    const std::vector<double> wanted = document_losses(alone, axis, true);
    const std::vector<double> mixed = document_losses(packed, axis, false);
    ASSERT_EQ(wanted.size(), 10U);
    ASSERT_EQ(together.size(), wanted.size());
    double difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(together[i], wanted[i], 1e-5) << "document " << i;
      difference = std::max(difference, std::abs(mixed[i] - wanted[i]));
    }
    EXPECT_GT(difference, 1e-2);  // what positions and masks are there for
  });
}

// Loss and norm of one update over all documents, packed and sharded, against one document a row.
TEST_P(Isolate, GradientsAreThoseOfTheDocumentsAlone) {
  const std::string path = write_documents();
  const auto step = [&](data::Pack pack, int ranks, int stage, config::Recompute recompute) {
    train::TrainJob job = job_of(GetParam(), path, pack, ranks, stage);
    const auto rows = job.dataset->num_samples();
    config::TrainConfig config;
    config.run.ranks = ranks;
    config.run.recompute = recompute;
    config.zero.stage = stage;
    config.batch = {.train_batch_size = rows, .micro_batch_size = rows, .accumulation = 1};
    config.gradient_clipping = 0;
    job.plan = plan::make_run_plan(config, job.model, kSequence, 1);
    train::StepResult result;
    comm::run_ranks(ranks, [&](comm::Communicator& axis) {
      train::Assembly assembly = train::assemble(job, axis);
      std::vector<std::int64_t> mine;
      for (std::int64_t row = axis.rank(); row < rows; row += ranks) mine.push_back(row);
      const train::StepResult out = train::train_step(
          *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, 1,
          [&](std::int64_t) { return data::make_batch(*job.dataset, mine); }, [] { return train::RankReport{}; });
      if (axis.rank() == 0) result = out;
    });
    return result;
  };
  const train::StepResult alone = step(data::Pack::kOff, 1, 0, config::Recompute::kNone);
  for (const auto recompute : {config::Recompute::kNone, config::Recompute::kFull}) {
    const train::StepResult packed = step(data::Pack::kIsolate, 2, 3, recompute);
    EXPECT_EQ(packed.tokens, alone.tokens);
    EXPECT_NEAR(packed.loss, alone.loss, 1e-5);
    EXPECT_NEAR(packed.grad_norm, alone.grad_norm, 1e-5 * alone.grad_norm);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Isolate, testing::Values("llama-gqa", "mistral-window", "qwen3", "gpt2"));

}  // namespace
}  // namespace intarsia::parity
