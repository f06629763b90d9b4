#include "intarsia/plan/directory_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::plan {
namespace {

const std::string kHf = "tests/fixtures/hf/";

class DirectoryWeightsOfFixtures : public ::testing::TestWithParam<const char*> {};

// Elements of all parameters, by the table in the fixtures' README.
std::int64_t documented_numel(const std::string& name) {
  if (name == "llama-gqa") return 45180;
  if (name == "llama-tied") return 48800;
  if (name == "llama-rope-old") return 40068;
  if (name == "llama-rope-v5") return 69936;
  if (name == "mistral-full") return 42784;
  if (name == "mistral-window") return 48348;
  if (name == "qwen2-tied") return 44880;
  if (name == "qwen3") return 55880;
  if (name == "gpt2") return 52032;
  if (name == "gpt2-hub") return 34212;
  return 43552;  // llama-bf16
}

TEST_P(DirectoryWeightsOfFixtures, EveryTensorIsAccountedForAndPiecesEqualTheFile) {
  const std::string directory = kHf + GetParam() + "/model";
  const ModelSpec spec = model_spec(formats::read_hf_config(directory));
  EXPECT_EQ(spec.numel(), documented_numel(GetParam()));
  const DirectoryWeights weights(directory, spec);
  const auto files = formats::ModelDirectory::open(directory);
  const std::size_t masks = std::string(GetParam()) == "gpt2-hub" ? 2 : 0;  // buffers that are no parameters
  EXPECT_EQ(files.num_tensors(), spec.params.size() + masks);
  for (const ParamSpec& param : spec.params) {
    const std::int64_t numel = param.numel();
    std::vector<float> whole(static_cast<std::size_t>(numel)), pieces(whole.size(), -1);
    const formats::LocatedTensor located = files.find(param.name);
    ASSERT_NE(located.tensor, nullptr) << param.name;
    formats::read_as_f32(*located.file, *located.tensor, 0, numel, whole.data());
    const std::int64_t cut = numel / 3 + 1;
    weights.read(param, {cut, numel}, pieces.data() + cut);
    weights.read(param, {0, cut}, pieces.data());
    EXPECT_EQ(whole, pieces) << param.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Hf, DirectoryWeightsOfFixtures,
                         ::testing::Values("llama-gqa", "llama-tied", "llama-rope-old", "llama-rope-v5", "llama-bf16",
                                           "mistral-full", "mistral-window", "qwen2-tied", "qwen3", "gpt2",
                                           "gpt2-hub"));

TEST(DirectoryWeights, AModelOfAnotherShapeIsRefusedWithBothShapes) {
  const std::string directory = kHf + "llama-gqa/model";
  formats::HfConfig config = formats::read_hf_config(directory);
  config.intermediate_size = 55;
  try {
    DirectoryWeights(directory, model_spec(config));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    const std::string message = error.what();
    EXPECT_NE(message.find("\"model.layers.1.mlp.down_proj.weight\" has shape [36, 54], config.json asks for [36, 55]"),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace intarsia::plan
