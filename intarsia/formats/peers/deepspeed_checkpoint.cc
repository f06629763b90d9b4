#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/deepspeed_reader.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

// One state of one parameter: {"param": tensor, "cat_dim": ...}, or in stage 3 the bare flat tensor.
void add_universal(const std::string& path, const std::string& name, const std::string& kind, const NamedShape* known,
                   CheckpointContents& contents) {
  const ArchiveFile file(path);
  const auto inner = file.root().find("param");
  const auto tensor = file.archive().tensor(inner ? *inner : file.root());
  INTARSIA_CHECK(kFormat, tensor && tensor->is_contiguous(), printable(path), " holds ", file.root().describe(),
                 ", expected a tensor, or a dict with one under \"param\"");
  INTARSIA_CHECK(kFormat, known == nullptr || known->numel == tensor->numel(), printable(path), " has ",
                 tensor->numel(), " elements, the model's file says ", known == nullptr ? 0 : known->numel);
  contents.tensors.push_back({.name = name,
                              .kind = kind,
                              .dtype = tensor->dtype,
                              .shape = known != nullptr ? known->shape : tensor->shape,
                              .pieces = {{file.add_to(contents), tensor->begin, {0}, {tensor->numel()}}}});
}

}  // namespace

void read_deepspeed_universal(const DeepSpeedFiles& files, const DeepSpeedModel& model, CheckpointContents& contents) {
  std::map<std::string, const NamedShape*, std::less<>> shapes;
  for (const auto& group : model.groups)
    for (const NamedShape& param : group) shapes.emplace(param.name, &param);
  const fs::path zero = fs::path(files.folder) / "zero";
  std::int64_t step = 0;
  std::map<std::string, fs::path> folders;
  for (const std::string& name : io::list_directory(zero.string()))
    if (fs::is_directory(zero / name)) folders.emplace(name, zero / name);
  for (const auto& [name, folder] : folders) {
    const auto known = shapes.find(name);
    const NamedShape* shape = known == shapes.end() ? nullptr : known->second;
    std::map<std::string, std::string> states;
    for (const std::string& file : io::list_directory(folder.string()))
      if (file.ends_with(".pt")) states.emplace(file.substr(0, file.size() - 3), file);
    INTARSIA_CHECK(kFormat, states.contains("fp32"), printable(folder.string()),
                   " lacks fp32.pt, the parameter's values; was the checkpoint copied completely?");
    for (const auto& [kind, file] : states) {
      const std::string path = path_inside(folder.string(), file, folder.string());
      if (kind == "step") {
        const ArchiveFile archive(path);
        const auto number = count_of(number_of(archive.archive(), archive.root()));
        INTARSIA_CHECK(kFormat, number && *number >= 0, printable(path), " holds ", archive.root().describe(),
                       ", expected a number of updates");
        step = std::max(step, *number);
      } else {
        add_universal(path, name, kind == "fp32" ? "master" : kind, shape, contents);
      }
    }
  }
  for (const auto& [name, shape] : shapes)
    INTARSIA_CHECK(kFormat, folders.contains(name), printable(zero.string()), " lacks the folder of ", printable(name),
                   ", which the model's file names");
  if (step > 0) contents.state.updates = step;
  const std::string state_path = (zero / "optimizer_state.pt").string();
  if (!fs::exists(state_path)) return;
  const ArchiveFile file(path_inside(zero.string(), "optimizer_state.pt", zero.string()));
  const auto groups = file.root().find("param_groups");
  std::vector<std::vector<std::string>> names;
  for (const auto& group : model.groups)
    for (std::vector<std::string>& of_group = names.emplace_back(); const NamedShape& param : group)
      of_group.push_back(param.name);
  if (groups) read_deepspeed_numbers(file.archive(), file.root(), *groups, names, contents.state);
}

LogicalCheckpoint open_deepspeed(const std::string& path) {
  CheckpointContents contents;
  contents.path = path;
  const DeepSpeedFiles files = find_deepspeed_files(path);
  const DeepSpeedModel model = read_deepspeed_model(files, contents);
  if (files.is_universal) {
    contents.format = "DeepSpeed universal";
    read_deepspeed_universal(files, model, contents);
    return LogicalCheckpoint(std::move(contents));
  }
  if (files.optimizer_files.empty()) {
    INTARSIA_CHECK(kFormat, !files.is_partitioned && model.groups.empty(), printable(files.folder),
                   " has no *_optim_states.pt, where the masters of its weights are");
    contents.format = "DeepSpeed stage 0";
    read_deepspeed_stage0(ArchiveFile(files.model_files[0]), contents);
    return LogicalCheckpoint(std::move(contents));
  }
  std::vector<DeepSpeedOptimizer> ranks;
  for (const std::string& file : files.optimizer_files)
    ranks.push_back(read_deepspeed_optimizer(file, ranks.empty(), model, contents));
  const auto have = static_cast<int>(ranks.size());
  INTARSIA_CHECK(kFormat, contents.ranks == 0 || contents.ranks == have, printable(files.folder), " was written by ",
                 contents.ranks, " ranks and has the optimizer files of ", have, "; that of rank ", have, " (",
                 have < contents.ranks ? "and what follows" : "too many", ") is the first that is wrong");
  const int stage = ranks[0].stage;
  contents.format = concat("DeepSpeed ZeRO-", stage);
  for (const DeepSpeedOptimizer& rank : ranks) {
    INTARSIA_CHECK(kFormat, rank.stage == stage, printable(files.folder), " has optimizer files of two ZeRO stages");
    if (rank.step > 0) contents.state.updates = rank.step;
  }
  if (stage == 3) {
    cut_stage3(model, ranks, contents);
  } else {
    cut_stage12(model, ranks, contents);
  }
  return LogicalCheckpoint(std::move(contents));
}

}  // namespace intarsia::formats
