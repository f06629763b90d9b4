#include "intarsia/plan/merged_weights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/plan/directory_weights.h"
#include "intarsia/plan/lora.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

const std::string kModels = "tests/fixtures/hf/", kAdapters = "tests/fixtures/lora/";

std::vector<float> values(const WeightSource& weights, const ParamSpec& param, Range range) {
  std::vector<float> out(static_cast<std::size_t>(range.size()));
  weights.read(param, range, out.data());
  return out;
}

// Every weight of an adapted model, against W + scale B A in double.
void expect_merged(const std::string& name) {
  const std::string base = kModels + name + "/model", adapter = kAdapters + name + "/adapter";
  const ModelSpec model = model_spec(find_model(base).config);
  const DirectoryWeights plain(base, model);
  const MergedWeights merged(std::make_unique<DirectoryWeights>(base, model), adapter, model);
  const auto file = formats::SafetensorsFile::open(adapter + "/adapter_model.safetensors");
  const formats::AdapterConfig config = formats::read_adapter_config(adapter);
  std::size_t changed = 0;
  for (const LoraTarget& at : lora_targets(model)) {
    const ParamSpec& param = model.params[static_cast<std::size_t>(at.weight)];
    const auto before = values(plain, param, {0, param.numel()}), after = values(merged, param, {0, param.numel()});
    const formats::TensorInfo* a = file.find(peft_name(model, lora_a_name(at.layer)));
    if (a == nullptr) {
      EXPECT_EQ(before, after) << param.name;
      continue;
    }
    ++changed;
    std::vector<float> a_values(static_cast<std::size_t>(a->numel())),
        b_values(static_cast<std::size_t>(config.r * at.out));
    formats::read_as_f32(file, *a, 0, a->numel(), a_values.data());
    const formats::TensorInfo& b = *file.find(peft_name(model, lora_b_name(at.layer)));
    formats::read_as_f32(file, b, 0, b.numel(), b_values.data());
    for (std::int64_t out = 0; out < at.out; ++out)
      for (std::int64_t in = 0; in < at.in; ++in) {
        double sum = 0;
        for (std::int64_t k = 0; k < config.r; ++k)
          sum += static_cast<double>(b_values[static_cast<std::size_t>(out * config.r + k)]) *
                 a_values[static_cast<std::size_t>(k * at.in + in)];
        const std::int64_t index = model.family == "gpt2" ? in * at.out + out : out * at.in + in;
        const auto i = static_cast<std::size_t>(index);
        ASSERT_NEAR(after[i], before[i] + config.alpha / static_cast<double>(config.r) * sum, 1e-6) << param.name;
      }
  }
  EXPECT_EQ(changed, merged.num_layers());
  EXPECT_GT(changed, 0U);
}

TEST(MergedWeights, AddWhatTheAdapterSays) {
  for (const char* name : {"llama-gqa", "llama-tied", "qwen2-tied", "gpt2", "gpt2-hub"}) expect_merged(name);
}

TEST(MergedWeights, APieceHasTheBitsOfTheWhole) {
  const std::string base = kModels + "gpt2/model";
  const ModelSpec model = model_spec(find_model(base).config);
  const MergedWeights merged(std::make_unique<DirectoryWeights>(base, model), kAdapters + "gpt2/adapter", model);
  const ParamSpec& param = model.params[static_cast<std::size_t>(lora_targets(model)[0].weight)];
  const auto all = values(merged, param, {0, param.numel()}), piece = values(merged, param, {77, 300});
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + 77));
}

TEST(MergedWeights, RefuseTheAdapterOfAnotherModel) {
  const std::string base = kModels + "llama-tied/model";
  const ModelSpec model = model_spec(find_model(base).config);
  for (const char* other : {"llama-gqa", "gpt2"}) {
    try {
      const MergedWeights merged(std::make_unique<DirectoryWeights>(base, model), kAdapters + other + "/adapter",
                                 model);
      FAIL() << other;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      EXPECT_NE(std::string(error.what()).find("is no adapter of this model"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace intarsia::plan
