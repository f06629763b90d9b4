#include "intarsia/formats/peers/full_state_dict.h"

#include <filesystem>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/peers/accelerate_files.h"
#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/formats/safetensors.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

std::optional<PickleValue> find_any(const PickleValue& dict, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto value = dict.find(key); value && value->kind() == PickleKind::kDict) return value;
  return std::nullopt;
}

void read_weights(const ArchiveFile& file, std::size_t index, const PickleValue& dict, CheckpointContents& contents) {
  INTARSIA_CHECK(kFormat, dict.kind() == PickleKind::kDict, printable(file.path()), " holds ", dict.describe(),
                 ", expected a dict of name to tensor");
  std::map<std::pair<std::uint64_t, std::vector<std::int64_t>>, std::string> seen;  // place and shape -> name
  for (std::size_t i = 0; i < dict.size(); i += 2) {
    const auto name = dict[i].text();
    const std::string text(name.value_or(""));
    INTARSIA_CHECK(kUnsupported, text.find("flat_param") == text.npos, printable(file.path()), " has \"",
                   printable(text), "\": a LOCAL_STATE_DICT of FSDP, whose layout only that run knows, is not read; ",
                   "save with SHARDED_STATE_DICT or FULL_STATE_DICT");
    const auto tensor = name ? file.archive().tensor(dict[i + 1]) : std::nullopt;
    INTARSIA_CHECK(kFormat, tensor, printable(file.path()), ": the entry ", name ? printable(text) : dict[i].describe(),
                   " is ", dict[i + 1].describe(), ", expected a dict of name to tensor");
    file.archive().bytes(*tensor);  // refuses what is not row-major
    const auto [first, is_new] = seen.try_emplace({tensor->begin, tensor->shape}, text);
    if (!is_new && tensor->numel() > 0) {
      contents.aliases.emplace(text, first->second);
      continue;
    }
    contents.tensors.push_back({.name = text,
                                .dtype = tensor->dtype,
                                .shape = tensor->shape,
                                .pieces = {{index, tensor->begin, {0}, {tensor->numel()}}}});
  }
}

// FSDP.full_optim_state_dict: {"state": {name: {...}}, "param_groups": [{"params": [names], ...}]}.
void read_optimizer(const ArchiveFile& file, std::size_t index, const PickleValue& dict, CheckpointContents& contents) {
  const auto states = dict.find("state"), groups = dict.find("param_groups");
  INTARSIA_CHECK(kFormat, states && states->kind() == PickleKind::kDict && groups, printable(file.path()), " holds ",
                 dict.describe(), " without \"state\" and \"param_groups\"; this is no optimizer's state");
  std::set<std::int64_t> updates;
  for (std::size_t i = 0; i < states->size(); i += 2) {
    const auto name = (*states)[i].kind() == PickleKind::kText ? (*states)[i].text() : std::nullopt;
    if (!name) {
      contents.state.no_optimizer_state = concat(printable(file.path()),
                                                 " has the optimizer's state by numbers and not "
                                                 "by names of weights");
      return;
    }
    const PickleValue entry = (*states)[i + 1];
    for (std::size_t k = 0; k + 1 < entry.size(); k += 2) {
      const auto key = entry[k].text();
      if (!key) continue;
      if (key == "step") {
        if (const auto count = count_of(number_of(file.archive(), entry[k + 1]))) updates.insert(*count);
        continue;
      }
      const auto tensor = file.archive().tensor(entry[k + 1]);
      if (!tensor) continue;
      file.archive().bytes(*tensor);
      contents.tensors.push_back({.name = std::string(*name),
                                  .kind = std::string(*key),
                                  .dtype = tensor->dtype,
                                  .shape = tensor->shape,
                                  .pieces = {{index, tensor->begin, {0}, {tensor->numel()}}}});
    }
  }
  if (updates.size() == 1) contents.state.updates = *updates.begin();
  if (updates.size() > 1) contents.state.no_optimizer_state = "its parameters were updated different numbers of times";
  for (std::size_t group = 0; group < groups->size(); ++group) {
    ParameterGroup& out = contents.state.groups.emplace_back();
    out.numbers = group_numbers((*groups)[group]);
    if (const auto names = (*groups)[group].find("params"))
      for (std::size_t i = 0; i < names->size(); ++i)
        if ((*names)[i].text()) out.names.emplace_back(*(*names)[i].text());
  }
}

void add_file(const TensorFile& file, CheckpointContents& contents) {
  const std::size_t index = contents.files.size();
  contents.files.push_back({.path = file.path(), .bytes = file.num_bytes(), .archives = {}});
  for (const TensorInfo& tensor : file.tensors())
    contents.tensors.push_back({.name = tensor.name,
                                .dtype = tensor.dtype,
                                .shape = tensor.shape,
                                .pieces = {{index, file.data_begin() + tensor.begin, {0}, {tensor.numel()}}}});
}

CheckpointContents start(const std::string& path, const char* format) {
  CheckpointContents contents;
  contents.path = path;
  contents.format = format;
  return contents;
}

constexpr const char* kOnlyWeights = "it has the weights only";

}  // namespace

LogicalCheckpoint open_full_state_dict(const std::string& path) {
  CheckpointContents contents = start(path, "PyTorch FULL_STATE_DICT");
  const ArchiveFile file(path);
  const PickleValue root = file.root();
  INTARSIA_CHECK(kUsage, !root.find("ds_version"), printable(path),
                 " is one file of a DeepSpeed checkpoint; give the folder that has \"latest\" instead");
  const std::size_t index = file.add_to(contents);
  const auto model = find_any(root, {"model", "module", "state_dict", "model_state_dict"});
  read_weights(file, index, model ? *model : root, contents);
  const auto optimizer = find_any(root, {"optimizer", "optim", "optimizer_state_dict"});
  if (model && optimizer) {
    read_optimizer(file, index, *optimizer, contents);
  } else {
    contents.state.no_optimizer_state = kOnlyWeights;
  }
  contents.state.step = contents.state.updates;
  return LogicalCheckpoint(std::move(contents));
}

bool is_full_folder(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::path(path) / "pytorch_model_fsdp.bin", error);
}

LogicalCheckpoint open_full_folder(const std::string& path) {
  CheckpointContents contents = start(path, "PyTorch FULL_STATE_DICT (Accelerate)");
  const ArchiveFile model(path_inside(path, "pytorch_model_fsdp.bin", path));
  read_weights(model, model.add_to(contents), model.root(), contents);
  std::error_code error;
  contents.state.no_optimizer_state = kOnlyWeights;
  if (fs::exists(fs::path(path) / "optimizer.bin", error)) {
    const ArchiveFile optimizer(path_inside(path, "optimizer.bin", path));
    contents.state.no_optimizer_state.clear();
    read_optimizer(optimizer, optimizer.add_to(contents), optimizer.root(), contents);
  }
  read_accelerate_files(path, contents);
  if (!contents.state.step) contents.state.step = contents.state.updates;
  return LogicalCheckpoint(std::move(contents));
}

LogicalCheckpoint open_safetensors_weights(const std::string& path) {
  CheckpointContents contents = start(path, "safetensors");
  add_file(SafetensorsFile::open(path), contents);
  contents.state.no_optimizer_state = kOnlyWeights;
  return LogicalCheckpoint(std::move(contents));
}

LogicalCheckpoint open_hf_weights(const std::string& directory) {
  CheckpointContents contents = start(directory, "Hugging Face model");
  const ModelDirectory model = ModelDirectory::open(directory);
  for (const TensorFile& file : model.files()) add_file(file, contents);
  contents.state.no_optimizer_state = kOnlyWeights;
  return LogicalCheckpoint(std::move(contents));
}

}  // namespace intarsia::formats
