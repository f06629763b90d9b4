// The model's file of a DeepSpeed checkpoint: NAME_model_states.pt.
#include <algorithm>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/deepspeed_reader.h"

namespace intarsia::formats {
namespace {

std::vector<NamedShape> shapes_of(const PickleValue& dict, const std::string& where, const std::string& key) {
  INTARSIA_CHECK(kFormat, dict.kind() == PickleKind::kDict, printable(where), ": ", key, " has ", dict.describe(),
                 ", expected a dict of name to shape");
  std::vector<NamedShape> out;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < dict.size(); i += 2) {
    const auto name = dict[i].text();
    INTARSIA_CHECK(kFormat, name, printable(where), ": ", key, " has a key that is ", dict[i].describe());
    NamedShape shape{.name = std::string(*name), .shape = sizes_of(dict[i + 1], where, std::string(*name))};
    shape.numel = numel_of(shape.shape, where, shape.name);
    // Far from overflow in all sums of elements and paddings that follow.
    INTARSIA_CHECK(kFormat, !__builtin_add_overflow(total, shape.numel, &total) && total <= (std::int64_t{1} << 59),
                   printable(where), ": ", key, " has more elements than can be");
    out.push_back(std::move(shape));
  }
  return out;
}

bool is_set(const std::optional<PickleValue>& value) { return value && value->kind() != PickleKind::kNone; }

bool is_enabled(const PickleValue& config, const char* section) {
  const auto found = config.find(section);
  const auto enabled = found ? found->find("enabled") : std::nullopt;
  return enabled && enabled->integer().value_or(0) != 0;
}

void read_counters(const PickleValue& root, TrainingState& state) {
  const auto integer = [&](const char* key) {
    const auto value = root.find(key);
    return value ? count_of(value->number()) : std::nullopt;
  };
  state.step = integer("global_steps");
  state.samples = integer("global_samples");
  if (state.step) state.updates = *state.step - integer("skipped_steps").value_or(0);
  if (const auto schedule = root.find("lr_scheduler")) state.schedule = dict_numbers(*schedule);
  if (const auto config = root.find("ds_config"))
    state.compute_dtype = is_enabled(*config, "bf16")   ? DType::kBF16
                          : is_enabled(*config, "fp16") ? DType::kF16
                                                        : DType::kF32;
}

// Of stages 0 to 2 the module holds every weight whole. Those with a master are left to it.
void read_module(const ArchiveFile& file, const DeepSpeedModel& model, std::size_t index,
                 CheckpointContents& contents) {
  const auto module = file.root().find("module");
  if (!is_set(module) || module->kind() != PickleKind::kDict) return;
  std::set<std::string, std::less<>> with_master, buffers;
  for (const auto& group : model.groups)
    for (const NamedShape& param : group) with_master.insert(param.name);
  if (const auto names = file.root().find("buffer_names"))
    for (std::size_t i = 0; i < names->size(); ++i)
      if (const auto name = (*names)[i].text()) buffers.emplace(*name);
  std::map<std::pair<std::uint64_t, std::vector<std::int64_t>>, std::string> seen;  // place and shape -> name
  for (std::size_t i = 0; i < module->size(); i += 2) {
    const auto name = (*module)[i].text();
    const auto tensor = file.archive().tensor((*module)[i + 1]);
    if (!name || !tensor || buffers.contains(*name) || contents.aliases.contains(std::string(*name))) continue;
    if (tensor->numel() == 0) continue;  // stage 3 leaves empty ones here
    file.archive().bytes(*tensor);       // refuses what is not row-major
    // Two names of one storage are a tied weight.
    const auto [first, is_new] = seen.try_emplace({tensor->begin, tensor->shape}, std::string(*name));
    if (!is_new) {
      contents.aliases.emplace(*name, first->second);
    } else if (!with_master.contains(*name)) {
      contents.tensors.push_back({.name = std::string(*name),
                                  .dtype = tensor->dtype,
                                  .shape = tensor->shape,
                                  .pieces = {{index, tensor->begin, {0}, {tensor->numel()}}}});
    }
  }
}

// Of stage 3 each rank's file has its share of every frozen weight; padding is at the end of the last ones.
void read_frozen_shares(const DeepSpeedFiles& files, const std::vector<NamedShape>& frozen,
                        CheckpointContents& contents) {
  const std::size_t first = contents.tensors.size();
  for (const NamedShape& param : frozen) contents.tensors.push_back({.name = param.name, .shape = param.shape});
  const auto ranks = static_cast<std::int64_t>(files.model_files.size());
  for (std::size_t rank = 0; rank < files.model_files.size(); ++rank) {
    const ArchiveFile file(files.model_files[rank]);
    const std::size_t index = file.add_to(contents);
    const auto fragments = file.root().find("frozen_param_fragments");
    for (std::size_t i = 0; i < frozen.size(); ++i) {
      const auto value = fragments ? fragments->find(frozen[i].name) : std::nullopt;
      const auto tensor = value ? file.archive().tensor(*value) : std::nullopt;
      const std::int64_t share = (frozen[i].numel + ranks - 1) / ranks, begin = static_cast<std::int64_t>(rank) * share;
      INTARSIA_CHECK(kFormat, tensor && tensor->is_contiguous() && tensor->numel() == share, printable(file.path()),
                     ": the share of the frozen weight ", printable(frozen[i].name), " is not there, or has not the ",
                     share, " elements that its shape asks for");
      LogicalTensor& out = contents.tensors[first + i];
      INTARSIA_CHECK(kFormat, rank == 0 || out.dtype == tensor->dtype, printable(file.path()), ": the frozen weight ",
                     printable(frozen[i].name), " has not the dtype it has in rank 0's file");
      out.dtype = tensor->dtype;
      const std::int64_t count = std::min(share, frozen[i].numel - begin);
      if (count > 0) out.pieces.push_back({index, tensor->begin, {begin}, {count}});
    }
  }
}

}  // namespace

DeepSpeedModel read_deepspeed_model(const DeepSpeedFiles& files, CheckpointContents& contents) {
  const ArchiveFile file(files.model_files[0]);
  const PickleValue root = file.root();
  const std::string& path = file.path();
  INTARSIA_CHECK(kFormat, root.kind() == PickleKind::kDict && root.find("module"), printable(path), " holds ",
                 root.describe(), ", expected DeepSpeed's dict with the key \"module\"");
  const auto world = root.find("dp_world_size"), model_world = root.find("mp_world_size");
  if (world && world->integer())
    contents.ranks = static_cast<int>(std::clamp<std::int64_t>(*world->integer(), 0, 1 << 20));
  INTARSIA_CHECK(kUnsupported, !model_world || model_world->integer().value_or(1) == 1, printable(path),
                 ": a checkpoint of ", model_world->integer().value_or(0), " tensor-parallel ranks is not read");
  read_counters(root, contents.state);
  if (const auto shared = root.find("shared_params"); is_set(shared))
    for (std::size_t i = 0; i + 1 < shared->size(); i += 2)
      if ((*shared)[i].text() && (*shared)[i + 1].text())
        contents.aliases.emplace(*(*shared)[i].text(), *(*shared)[i + 1].text());

  DeepSpeedModel model;
  if (const auto shapes = root.find("param_shapes"); is_set(shapes)) {
    if (shapes->kind() == PickleKind::kDict) model.groups.push_back(shapes_of(*shapes, path, "param_shapes"));
    if (shapes->kind() == PickleKind::kList)
      for (std::size_t i = 0; i < shapes->size(); ++i)
        model.groups.push_back(shapes_of((*shapes)[i], path, concat("param_shapes[", i, "]")));
  }
  // A tie is stored under the name that the optimizer has.
  for (const auto& group : model.groups)
    for (const NamedShape& param : group)
      if (const auto alias = contents.aliases.find(param.name); alias != contents.aliases.end()) {
        const std::string other = alias->second;
        contents.aliases.erase(alias);
        contents.aliases.emplace(other, param.name);
      }
  if (const auto frozen = root.find("frozen_param_shapes"); is_set(frozen))
    model.frozen = shapes_of(*frozen, path, "frozen_param_shapes");
  if (files.is_partitioned) {
    if (!model.frozen.empty()) read_frozen_shares(files, model.frozen, contents);
  } else {
    read_module(file, model, file.add_to(contents), contents);
  }
  return model;
}

}  // namespace intarsia::formats
