// Logits with a key/value cache against the logits of the whole text without one.
#include "intarsia/models/key_value_cache.h"

#include "fixture_case.h"
#include "intarsia/plan/directory_weights.h"

namespace intarsia::parity {
namespace {

using Ids = std::vector<std::int64_t>;

// Of tests/fixtures/hf, or of tests/fixtures/families by "families/NAME".
plan::ModelSource model_of(const std::string& name) {
  return plan::find_model((name.starts_with("families/") ? "tests/fixtures/" + name : fixture(name)) + "/model");
}

Ids some_ids(std::size_t length, std::int64_t seed) {
  Ids ids;
  for (std::size_t i = 0; i < length; ++i) ids.push_back(seed = seed * 37 % 59);
  return ids;
}

// A model with one cache, asked for text after text.
class Cached {
 public:
  Cached(const plan::ModelSource& source, comm::Communicator& axis, DType dtype)
      : plan_(plan::make_inference_plan(source.config, axis.size(), dtype)),
        weights_(source.directory, plan_.model),
        engine_(plan_, axis, weights_),
        model_(models::make_model(source.config, plan_)) {}

  void expect_same(const Ids& ids, double tolerance) {
    const at::NoGradGuard no_grad;
    const at::Tensor input = models::unread(ids, 0);
    const at::Tensor wanted = model_->logits(engine_.parameters(), &engine_, input)[0][-1];
    const at::Tensor found = model_->last_logits(engine_.parameters(), &engine_, ids, cache_);
    ASSERT_EQ(found.sizes(), wanted.sizes());
    EXPECT_LE((found - wanted).abs().max().item<double>(), tolerance) << ids.size() << " tokens";
  }

 private:
  plan::RunPlan plan_;  // what follows refers to it
  plan::DirectoryWeights weights_;
  shard::Engine engine_;
  std::unique_ptr<models::Model> model_;
  models::KeyValueCache cache_;
};

class KeyValueCache : public testing::TestWithParam<const char*> {};

// Token by token and several at once, past the sliding window of 6 tokens and past the length from which dynamic
// scaling turns all keys in another way; then back to a part of the text, to other texts, and to the same one.
TEST_P(KeyValueCache, GivesTheLogitsOfTheWholeText) {
  const plan::ModelSource source = model_of(GetParam());
  const Ids text = some_ids(30, 3), other = some_ids(30, 5);
  const auto first = [](const Ids& ids, std::size_t count) { return Ids(ids.begin(), ids.begin() + count); };
  comm::run_ranks(1, [&](comm::Communicator& axis) {
    Cached model(source, axis, DType::kF32);
    for (const std::size_t count : {1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 21, 22, 29, 30})
      model.expect_same(first(text, count), 1e-5);
    model.expect_same(first(text, 30), 1e-5);
    model.expect_same(first(text, 7), 1e-5);
    Ids branch = first(text, 5);
    branch.insert(branch.end(), other.begin(), other.begin() + 8);
    model.expect_same(branch, 1e-5);
    model.expect_same(Ids(text.begin() + 1, text.begin() + 14), 1e-5);
    model.expect_same(first(other, 3), 1e-5);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, KeyValueCache,
                         testing::Values("llama-gqa", "llama-tied", "llama-rope-v5", "mistral-full", "mistral-window",
                                         "qwen2-tied", "qwen3", "gpt2", "gpt2-hub", "families/rope-linear",
                                         "families/rope-dynamic", "families/rope-yarn-v5", "families/llama-biases",
                                         "families/qwen2-window", "families/qwen3-window", "families/gpt2-untied"));

// Parameters come and go with their units; bf16 rounds in another order for one row than for many.
TEST(KeyValueCacheLayouts, ShardedAndInSixteenBits) {
  const plan::ModelSource source = model_of("mistral-window");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    comm::run_ranks(2,
                    [&](comm::Communicator& axis) {
                      Cached model(source, axis, dtype);
                      for (const std::size_t count : {5, 6, 7, 8, 12, 30})
                        model.expect_same(some_ids(count, 3), dtype == DType::kF32 ? 1e-5 : 0.05);
                    },
                    {.force_copy = true, .timeout_seconds = 60});
}

}  // namespace
}  // namespace intarsia::parity
