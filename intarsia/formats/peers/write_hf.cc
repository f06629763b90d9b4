#include "intarsia/formats/peers/write_hf.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunk = 1 << 19;  // elements
constexpr const char* kCopied[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                   "generation_config.json", "chat_template.jinja"};

using Tensors = std::vector<std::pair<std::string, const LogicalTensor*>>;  // name in the file -> tensor

SafetensorsLayout layout_of(const Tensors& tensors, DType dtype) {
  std::vector<TensorDecl> declarations;
  for (const auto& [name, tensor] : tensors)
    declarations.push_back({.name = name, .dtype = dtype, .shape = tensor->shape});
  return layout_safetensors(std::move(declarations));
}

class Copier {
 public:
  Copier(const LogicalCheckpoint& checkpoint, const WriteProgress& progress)
      : checkpoint_(checkpoint), progress_(progress) {}

  void plan(const SafetensorsLayout& layout) {
    total_ += static_cast<std::int64_t>(layout.file_bytes - layout.data_begin());
  }

  void write(const std::string& path, SafetensorsLayout layout, const Tensors& tensors, DType dtype) {
    std::map<std::string_view, const LogicalTensor*> by_name(tensors.begin(), tensors.end());
    SafetensorsWriter writer = SafetensorsWriter::create(path, std::move(layout));
    for (const TensorInfo& info : writer.layout().tensors) {
      const LogicalTensor& tensor = *by_name.at(info.name);
      for (std::int64_t begin = 0; begin < tensor.numel(); begin += kChunk) {
        const std::int64_t end = std::min(begin + kChunk, tensor.numel());
        values_.resize(static_cast<std::size_t>(end - begin));
        checkpoint_.read(tensor, begin, end, values_.data());
        const auto bytes = narrow(values_, dtype, halves_);
        writer.append(bytes);
        done_ += static_cast<std::int64_t>(bytes.size());
        if (progress_) progress_(done_, total_);
      }
    }
    writer.flush();
    writer.finish();
  }

 private:
  const LogicalCheckpoint& checkpoint_;
  const WriteProgress& progress_;
  std::vector<float> values_;
  std::vector<std::uint16_t> halves_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

void write_hf(const LogicalCheckpoint& checkpoint, const std::string& directory, const HfWrite& options,
              const WriteProgress& progress) {
  std::error_code error;
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"})
    INTARSIA_CHECK(kUsage, !fs::exists(fs::path(directory) / name, error), printable(directory), " has a ", name,
                   " already; name a folder that is new");
  Tensors weights = options.weights, states;
  if (weights.empty())
    for (const LogicalTensor* tensor : checkpoint.weights())
      if (!checkpoint.aliases().contains(tensor->name)) weights.emplace_back(tensor->name, tensor);
  INTARSIA_CHECK(kFormat, !weights.empty(), printable(checkpoint.path()), " holds no weights");
  if (!options.optimizer_state.empty()) {
    std::multimap<std::string_view, const LogicalTensor*> by_name;
    for (const LogicalTensor& tensor : checkpoint.tensors())
      if (tensor.kind != "master" && tensor.kind != "weight") by_name.emplace(tensor.name, &tensor);
    for (const auto& [name, weight] : weights)
      for (auto [at, end] = by_name.equal_range(weight->name); at != end; ++at)
        states.emplace_back(at->second->kind + "." + name, at->second);
    INTARSIA_CHECK(kUsage, !states.empty(), printable(checkpoint.path()),
                   " has no state of the optimizer: ", checkpoint.state().no_optimizer_state,
                   "; leave out --optimizer-state");
  }
  SafetensorsLayout weights_layout = layout_of(weights, options.dtype), states_layout;
  Copier copier(checkpoint, progress);
  copier.plan(weights_layout);
  if (!states.empty()) {
    states_layout = layout_of(states, DType::kF32);
    copier.plan(states_layout);
  }
  fs::create_directories(directory, error);
  if (error) io::fail_io("create the folder", directory, error.value());
  const auto path = [&](const char* name) { return (fs::path(directory) / name).string(); };
  copier.write(path("model.safetensors"), std::move(weights_layout), weights, options.dtype);
  if (!states.empty()) copier.write(options.optimizer_state, std::move(states_layout), states, DType::kF32);
  for (const char* name : kCopied) {
    const fs::path from = fs::path(options.copy_from) / name;
    if (options.copy_from.empty() || !fs::is_regular_file(from, error)) continue;
    io::write_file_atomic(path(name), io::read_text_file(from.string(), std::uint64_t{1} << 30));
  }
  if (!options.config.empty()) io::write_file_atomic(path("config.json"), options.config);
}

}  // namespace intarsia::formats
