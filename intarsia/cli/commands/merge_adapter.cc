#include "intarsia/cli/commands/merge_adapter.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/account_tensors.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"
#include "intarsia/plan/directory_weights.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/merged_weights.h"

namespace intarsia::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPiece = 1 << 20;  // elements that are in memory at a time
constexpr std::array kCopied = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                "generation_config.json", "chat_template.jinja"};

std::vector<formats::TensorDecl> declarations(const std::string& base, const plan::ModelSpec& model,
                                              std::optional<DType> dtype) {
  const formats::ModelDirectory directory = formats::ModelDirectory::open(base);
  std::vector<formats::ExpectedTensor> expected;
  for (const plan::ParamSpec& param : model.params)
    expected.push_back({.name = param.name, .shape = param.shape, .tied_names = param.tied_names});
  const auto located = formats::account_tensors(directory, expected);
  std::vector<formats::TensorDecl> tensors;
  for (std::size_t i = 0; i < located.size(); ++i) {
    const DType kept = dtype.value_or(located[i].tensor->dtype);
    INTARSIA_CHECK(kUnsupported, kept == DType::kF32 || kept == DType::kBF16 || kept == DType::kF16, printable(base),
                   ": ", printable(expected[i].name), " is ", safetensors_name(kept), "; give --dtype fp32");
    tensors.push_back({.name = expected[i].name, .dtype = kept, .shape = expected[i].shape});
  }
  return tensors;
}

void write_weights(const std::string& path, std::vector<formats::TensorDecl> tensors, const plan::ModelSpec& model,
                   const plan::WeightSource& weights, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  auto writer = formats::SafetensorsWriter::create(path, formats::layout_safetensors(std::move(tensors)));
  const auto total = static_cast<std::int64_t>(writer.layout().file_bytes - writer.layout().data_begin());
  std::vector<float> values;
  std::vector<std::uint16_t> halves;
  std::int64_t done = 0;
  for (const formats::TensorInfo& tensor : writer.layout().tensors) {
    const plan::ParamSpec& param = model.params[static_cast<std::size_t>(model.find(tensor.name).value())];
    for (std::int64_t begin = 0; begin < tensor.numel(); begin += kPiece) {
      const plan::Range range{begin, std::min(begin + kPiece, tensor.numel())};
      values.resize(static_cast<std::size_t>(range.size()));
      weights.read(param, range, values.data());
      writer.append(formats::narrow(values, tensor.dtype, halves));
      done += range.size() * static_cast<std::int64_t>(dtype_size(tensor.dtype));
      progress(done, total);
    }
  }
  writer.flush();
  writer.finish();
}

}  // namespace

MergedModel merge_adapter(const std::string& adapter, const std::string& base, const std::string& destination,
                          std::optional<DType> dtype, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::error_code error;
  const formats::AdapterConfig adapter_config = formats::read_adapter_config(adapter);
  INTARSIA_CHECK(kUsage, !base.empty(), "--model is missing: the directory of the model that ", printable(adapter),
                 " belongs to (its ", formats::kAdapterConfigName, " names \"", printable(adapter_config.base_model),
                 "\"; a path in a file is not followed)");
  INTARSIA_CHECK(kUsage, fs::is_directory(base, error), "--model ", printable(base), ": no such directory");
  INTARSIA_CHECK(kUsage, !fs::exists(fs::path(destination) / "config.json", error), printable(destination),
                 " has a config.json already; name a folder that is new");
  const plan::ModelSource source = plan::find_model(base);
  INTARSIA_CHECK(kUnsupported, source.weights.empty(), "--model ", printable(base),
                 " is a checkpoint; convert it to a ", "Hugging Face directory first");
  formats::HfConfig config = source.config;
  const plan::ModelSpec model = plan::model_spec(config);
  const plan::MergedWeights weights(std::make_unique<plan::DirectoryWeights>(base, model), adapter, model);
  std::vector<formats::TensorDecl> tensors = declarations(base, model, dtype);
  const std::size_t count = tensors.size();

  fs::create_directories(destination, error);
  if (error) io::fail_io("create the folder", destination, error.value());
  const auto path = [](const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); };
  for (const char* name : kCopied)
    for (const std::string& folder : {adapter, base})
      if (fs::exists(path(folder, name), error)) {
        io::write_file_atomic(path(destination, name), io::read_text_file(path(folder, name), 1 << 28));
        break;
      }
  config.dtype = dtype.value_or(config.dtype);
  formats::write_hf_config(destination, config);
  write_weights(path(destination, "model.safetensors"), std::move(tensors), model, weights, progress);
  return {.tensors = count, .layers = weights.num_layers()};
}

}  // namespace intarsia::cli
