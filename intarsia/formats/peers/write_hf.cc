#include "intarsia/formats/peers/write_hf.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/hf_shards.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopied[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                   "generation_config.json", "chat_template.jinja"};

using Tensors = std::vector<std::pair<std::string, const LogicalTensor*>>;  // name in the file -> tensor

std::vector<TensorDecl> declarations(const Tensors& tensors, DType dtype) {
  std::vector<TensorDecl> out;
  for (const auto& [name, tensor] : tensors) out.push_back({.name = name, .dtype = dtype, .shape = tensor->shape});
  return out;
}

// Writes one file, of tensors that `tensors` has among others.
void write_file(const std::string& path, SafetensorsLayout layout, const Tensors& tensors, TensorCopier& copier) {
  const std::map<std::string_view, const LogicalTensor*> by_name(tensors.begin(), tensors.end());
  SafetensorsWriter writer = SafetensorsWriter::create(path, std::move(layout));
  for (const TensorInfo& info : writer.layout().tensors)
    copier.copy(*by_name.at(info.name), info.dtype, [&](std::span<const std::byte> bytes) { writer.append(bytes); });
  writer.finish();
}

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
  const HfShards shards(declarations(weights, options.dtype), options.max_shard_bytes);
  std::vector<SafetensorsLayout> layouts;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) layouts.push_back(layout_safetensors(shards[shard]));
  if (!states.empty()) layouts.push_back(layout_safetensors(declarations(states, DType::kF32)));
  TensorCopier copier(checkpoint, progress);
  for (const SafetensorsLayout& layout : layouts)
    copier.expect(static_cast<std::int64_t>(layout.file_bytes - layout.data_begin()));
  fs::create_directories(directory, error);
  if (error) io::fail_io("create the folder", directory, error.value());
  const auto path = [&](const std::string& name) { return (fs::path(directory) / name).string(); };
  for (std::size_t shard = 0; shard < shards.size(); ++shard)
    write_file(path(shards.file_name(shard)), std::move(layouts[shard]), weights, copier);
  if (const std::string index = shards.index_text(); !index.empty()) io::write_file_atomic(path(kHfIndexName), index);
  if (!states.empty()) write_file(options.optimizer_state, std::move(layouts.back()), states, copier);
  for (const char* name : kCopied) {
    const fs::path from = fs::path(options.copy_from) / name;
    if (options.copy_from.empty() || !fs::is_regular_file(from, error)) continue;
    io::write_file_atomic(path(name), io::read_text_file(from.string(), std::uint64_t{1} << 30));
  }
  if (!options.config.empty()) io::write_file_atomic(path("config.json"), options.config);
}

}  // namespace intarsia::formats
