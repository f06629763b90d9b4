#include "intarsia/checkpoint/export_hf.h"

#include <fstream>

#include "intarsia/checkpoint/testing_run.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/plan/directory_weights.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;
using comm::Communicator;
using comm::run_ranks;

using Export = CheckpointTest;

// Loads the fixture on `ranks` ranks and exports it to `directory`.
void export_fixture(const std::string& source, const std::string& directory, int ranks, int stage, DType compute,
                    const ExportOptions& options) {
  const formats::HfConfig config = formats::read_hf_config(source);
  const plan::RunPlan plan = run_plan(plan::model_spec(config), ranks, stage, compute);
  const plan::DirectoryWeights weights(source, plan.model);
  run_ranks(ranks, [&](Communicator& axis) {
    shard::Engine engine(plan, axis, weights);
    export_hf(engine, config, directory, options);
  });
}

// All of `a` stands in `b`, which has `more` tensors beside.
void expect_same_tensors(const std::string& a, const std::string& b, std::size_t more = 0) {
  const auto left = formats::ModelDirectory::open(a);
  const auto right = formats::ModelDirectory::open(b);
  EXPECT_EQ(left.num_tensors() + more, right.num_tensors());
  for (const formats::TensorFile& file : left.files()) {
    for (const formats::TensorInfo& tensor : file.tensors()) {
      const formats::LocatedTensor other = right.find(tensor.name);
      ASSERT_NE(other.tensor, nullptr) << tensor.name;
      EXPECT_EQ(other.tensor->dtype, tensor.dtype) << tensor.name;
      EXPECT_EQ(other.tensor->shape, tensor.shape) << tensor.name;
      EXPECT_TRUE(std::ranges::equal(file.bytes(tensor), other.file->bytes(*other.tensor))) << tensor.name;
    }
  }
}

TEST_F(Export, GivesTheSourcesBits) {
  const std::string hf = "tests/fixtures/hf/";
  const std::string out = folder_ + "/model";
  export_fixture(hf + "llama-gqa/model", out, 2, 3, DType::kF32, {});
  expect_same_tensors(hf + "llama-gqa/model", out);
  EXPECT_EQ(formats::read_hf_config(out), formats::read_hf_config(hf + "llama-gqa/model"));
  export_fixture(hf + "llama-tied/model", out, 3, 1, DType::kBF16, {});  // replaces; masters keep fp32
  expect_same_tensors(hf + "llama-tied/model", out);
  export_fixture(hf + "gpt2/model", out, 2, 3, DType::kF32, {});  // Conv1D weights stay [in, out]
  expect_same_tensors(hf + "gpt2/model", out);
  export_fixture(hf + "gpt2-hub/model", out, 2, 2, DType::kF32, {});  // names without "transformer."
  expect_same_tensors(out, hf + "gpt2-hub/model", 2);                 // its causal masks are no weights
  EXPECT_EQ(formats::read_hf_config(out), formats::read_hf_config(hf + "gpt2-hub/model"));
  for (const char* name : {"mistral-full", "qwen2-tied", "qwen3"}) {
    export_fixture(hf + name + "/model", out, 2, 3, DType::kF32, {});
    expect_same_tensors(hf + name + "/model", out);
    EXPECT_EQ(formats::read_hf_config(out), formats::read_hf_config(hf + name + "/model"));
  }
  export_fixture(hf + "llama-bf16/model", out, 2, 0, DType::kBF16, {.dtype = DType::kBF16});
  expect_same_tensors(hf + "llama-bf16/model", out);
  EXPECT_EQ(formats::read_hf_config(out).dtype, DType::kBF16);
}

TEST_F(Export, LargeModelsAreCutIntoFilesWithAnIndex) {
  const std::string source = "tests/fixtures/hf/llama-gqa/model";
  const std::string out = folder_ + "/model/";
  export_fixture(source, out, 2, 3, DType::kF32, {.max_shard_bytes = 40'000});
  EXPECT_FALSE(fs::exists(out + "model.safetensors"));
  EXPECT_GT(formats::ModelDirectory::open(out).files().size(), 3U);
  expect_same_tensors(source, out);
  export_fixture(source, out, 1, 0, DType::kF32, {});
  EXPECT_FALSE(fs::exists(out + "model.safetensors.index.json")) << "nothing of the former export is left";
}

TEST_F(Export, CopiesTheTokenizerAndKeepsForeignFiles) {
  const std::string source = "tests/fixtures/hf/llama-gqa/model";
  const std::string from = folder_ + "/from";
  const std::string out = folder_ + "/model";
  fs::create_directories(from);
  fs::create_directories(out);
  std::ofstream(from + "/tokenizer.json") << "{}";
  std::ofstream(from + "/secret") << "stays";
  std::ofstream(out + "/thesis.txt") << "years of work";
  export_fixture(source, out, 1, 0, DType::kF32, {.copy_from = from});
  EXPECT_EQ(io::read_text_file(out + "/tokenizer.json", 10), "{}");
  EXPECT_FALSE(fs::exists(out + "/secret"));
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) found += entry.path().filename() == "thesis.txt";
  EXPECT_EQ(found, 1);
}

TEST_F(Export, AFailureIsEveryRanksAndLeavesTheFormerExport) {
  const std::string source = "tests/fixtures/hf/llama-gqa/model";
  std::ofstream(folder_ + "/file") << "no folder";
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { export_fixture(source, folder_ + "/file/out", 2, 3, DType::kF32, {}); })
                .find("rank 0: cannot create the folder"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorKind::kUsage,
                     [&] { export_fixture(source, source + "/", 2, 3, DType::kF32, {.copy_from = source}); })
                .find("is the folder that the model came from"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorKind::kUnsupported,
                     [&] { export_fixture(source, folder_ + "/x", 2, 3, DType::kF32, {.dtype = DType::kI64}); })
                .find("fp32, bf16 and fp16"),
            std::string::npos);
}

TEST_F(Export, GradientsAreWholeScaledAndOfTrainableParametersOnly) {
  for (int stage = 0; stage <= 3; ++stage) {
    const plan::RunPlan plan = run_plan(odd_model(), 3, stage);
    const std::string path = folder_ + "/gradients.safetensors";
    run_ranks(3, [&](Communicator& axis) {
      TestRun run(plan, axis);
      for (shard::FlatState& state : run.engine.states())
        if (state.layout->trainable)
          state.grad.copy_(at::arange(state.grad_range.begin, state.grad_range.end, at::kFloat));
      dump_gradients(run.engine, 0.5, path);
    });
    const auto file = formats::SafetensorsFile::open(path);
    EXPECT_EQ(file.tensors().size(), 5U);
    EXPECT_EQ(file.find("block.frozen"), nullptr);
    const formats::TensorInfo& weight = file.at("block.weight");
    EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{71, 33}));
    std::vector<float> values(71 * 33);
    formats::read_as_f32(file, weight, 0, 71 * 33, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 0.5F * static_cast<float>(i));
  }
}

}  // namespace
}  // namespace intarsia::checkpoint
