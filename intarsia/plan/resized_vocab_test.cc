#include "intarsia/plan/resized_vocab.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/config/train_config.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/directory_weights.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

const ParamSpec& param(const ModelSpec& spec, const std::string& name) {
  return spec.params[static_cast<std::size_t>(spec.find(name).value())];
}

std::vector<float> values(const WeightSource& weights, const ParamSpec& of, Range range) {
  std::vector<float> out(static_cast<std::size_t>(range.size()));
  weights.read(of, range, out.data());
  return out;
}

std::vector<float> values(const WeightSource& weights, const ParamSpec& of) {
  return values(weights, of, {0, of.numel()});
}

// A fixture before and after it got other rows.
struct Resized {
  Resized(const std::string& fixture, std::int64_t more) {
    const std::string directory = "tests/fixtures/hf/" + fixture + "/model";
    formats::HfConfig config = formats::read_hf_config(directory);
    in_files = model_spec(config);
    config.vocab_size += more;
    model = model_spec(config);
    files = std::make_unique<DirectoryWeights>(directory, in_files);
    weights = std::make_unique<ResizedWeights>(std::make_unique<DirectoryWeights>(directory, in_files), in_files);
  }
  ModelSpec in_files, model;
  std::unique_ptr<WeightSource> files, weights;
};

TEST(ResizedWeights, OldRowsStayAndEachNewOneIsTheirMean) {
  const std::vector<std::vector<std::string>> cases = {{"llama-gqa", "model.embed_tokens.weight", "lm_head.weight"},
                                                       {"llama-tied", "model.embed_tokens.weight"},
                                                       {"gpt2", "transformer.wte.weight"},
                                                       {"gpt2-hub", "wte.weight"}};
  for (const auto& row : cases) {
    const Resized it(row[0], 2);
    for (const ParamSpec& after : it.model.params) {
      const std::vector<float> before = values(*it.files, param(it.in_files, after.name));
      const std::vector<float> now = values(*it.weights, after);
      ASSERT_TRUE(std::equal(before.begin(), before.end(), now.begin())) << row[0] << " " << after.name;
      const bool has_rows = std::ranges::find(row.begin() + 1, row.end(), after.name) != row.end();
      const std::int64_t width = after.shape.back(), rows = static_cast<std::int64_t>(before.size()) / width;
      ASSERT_EQ(static_cast<std::int64_t>(now.size() - before.size()), has_rows ? 2 * width : 0) << after.name;
      for (std::int64_t column = 0; has_rows && column < width; ++column) {
        double sum = 0;
        for (std::int64_t i = 0; i < rows; ++i) sum += before[static_cast<std::size_t>(i * width + column)];
        for (const std::int64_t added : {rows, rows + 1})
          EXPECT_EQ(now[static_cast<std::size_t>(added * width + column)],
                    static_cast<float>(sum / static_cast<double>(rows)))
              << row[0] << " " << after.name << " row " << added << " column " << column;
      }
    }
  }
}

TEST(ResizedWeights, AnyPieceHasTheSameBits) {
  const Resized it("llama-gqa", 5);
  const ParamSpec& head = param(it.model, "lm_head.weight");
  const std::vector<float> whole = values(*it.weights, head);
  const std::int64_t old = param(it.in_files, "lm_head.weight").numel(), end = head.numel();
  for (const Range piece : {Range{0, old}, Range{old - 7, old + 3}, Range{old + 5, end - 1}, Range{old, end}}) {
    const Resized fresh("llama-gqa", 5);  // its means are not known yet
    const std::vector<float> part = values(*fresh.weights, head, piece);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + piece.begin)) << piece.begin << ", " << piece.end;
  }
}

TEST(ResizedWeights, FewerRowsAreTheFirst) {
  const Resized it("llama-tied", -3);
  const ParamSpec& embedding = param(it.model, "model.embed_tokens.weight");
  const std::vector<float> before = values(*it.files, param(it.in_files, embedding.name));
  const std::vector<float> now = values(*it.weights, embedding);
  ASSERT_EQ(before.size() - now.size(), static_cast<std::size_t>(3 * embedding.shape[1]));
  EXPECT_TRUE(std::equal(now.begin(), now.end(), before.begin()));
}

// A mean over more rows than are read at once, of numbers that fp32 sums would round away.
TEST(ResizedWeights, TheMeanIsOfAllRowsAndExact) {
  class Steps final : public WeightSource {
   public:
    void read(const ParamSpec&, Range range, float* out) const override {
      for (std::int64_t i = range.begin; i < range.end; ++i)
        out[i - range.begin] = i % 2 == 0 ? 1e8F : static_cast<float>(i / 2 % 2);
    }
  };
  const auto table = [](std::int64_t rows) {
    ModelSpec spec;
    spec.params.push_back({.name = "table", .shape = {rows, 2}});
    return spec;
  };
  const ResizedWeights weights(std::make_unique<Steps>(), table(100'000));
  EXPECT_EQ(values(weights, table(100'001).params[0], {200'000, 200'002}), (std::vector<float>{1e8F, 0.5F}));
}

TEST(ResizedVocab, FollowsANumberTheTokenizerOrAMultiple) {
  config::RunConfig run;
  EXPECT_EQ(resized_vocab(run, 10, 12), 10);
  run.resize_vocab = 12;
  EXPECT_EQ(resized_vocab(run, 10, std::nullopt), 12);
  EXPECT_EQ(resized_vocab(run, 20, 12), 12);
  run.resize_vocab = 0;  // "tokenizer"
  EXPECT_EQ(resized_vocab(run, 10, 13), 13);
  run.resize_vocab_multiple = 8;
  EXPECT_EQ(resized_vocab(run, 10, 13), 16);
  EXPECT_EQ(resized_vocab(run, 10, 16), 16);
}

TEST(ResizedVocab, RefusesFewerRowsThanTokensAndATokenizerThatIsNotThere) {
  const auto message = [](std::int64_t asked, std::optional<std::int64_t> tokens) -> std::string {
    config::RunConfig run;
    run.resize_vocab = asked;
    try {
      resized_vocab(run, 10, tokens);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(message(11, 12).find("--resize-vocab 11: the tokenizer has 12 tokens"), std::string::npos);
  EXPECT_NE(message(0, std::nullopt).find("there is no tokenizer.json"), std::string::npos);
}

TEST(ResizedVocab, IsRefusedBesideAdaptersWhichWouldNotHoldIt) {
  config::TrainConfig config;
  config.lora.r = 2;
  config.run.resize_vocab = 600;
  EXPECT_THROW(make_run_plan(config, preset("llama-tiny").value(), 16, 1), Error);
}

}  // namespace
}  // namespace intarsia::plan
