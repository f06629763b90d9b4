#include "intarsia/formats/peers/dcp_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/accelerate_files.h"
#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/formats/peers/dcp_metadata.h"
#include "intarsia/formats/tensor_file.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelWords[] = {"model", "module", "state_dict", "model_state_dict"};
constexpr std::string_view kOptimizerWords[] = {"optim", "optimizer", "optimizer_state_dict"};
constexpr std::string_view kScheduleWords[] = {"lr_scheduler", "scheduler"};

template <typename Words>
bool is_one_of(const std::string& word, const Words& words) {
  return std::ranges::find(words, word) != std::end(words);
}

// What a key of the nested dict means.
struct Meaning {
  enum Kind { kIgnored, kWeight, kState, kGroup, kSchedule, kTrainState } kind = kIgnored;
  std::string name;   // of the weight, or of the group
  std::string field;  // "exp_avg", "lr"
};

Meaning meaning_of(const std::vector<std::string>& path) {
  if (path.empty()) return {};
  if (path.size() == 1) return {Meaning::kWeight, path[0], ""};
  const std::string rest = join({path.begin() + 1, path.end()}, ".");
  if (is_one_of(path[0], kModelWords)) return {Meaning::kWeight, rest, ""};
  if (is_one_of(path[0], kScheduleWords)) return {Meaning::kSchedule, "", rest};
  if (path[0] == "train_state") return {Meaning::kTrainState, "", rest};
  if (!is_one_of(path[0], kOptimizerWords)) return {};
  const std::size_t dot = rest.rfind('.');
  for (const auto& [prefix, kind] : {std::pair("state.", Meaning::kState), std::pair("param_groups.", Meaning::kGroup)})
    if (const std::size_t size = std::string_view(prefix).size(); rest.starts_with(prefix) && dot >= size)
      return {kind, rest.substr(size, dot - size), rest.substr(dot + 1)};
  return {};
}

class DcpFolder {
 public:
  DcpFolder(std::string folder, CheckpointContents& contents)
      : folder_(std::move(folder)), where_((fs::path(folder_) / ".metadata").string()), contents_(contents) {}

  void read() {
    DcpMetadata metadata = read_dcp_metadata(folder_);
    restore_paths(metadata);
    for (const DcpTensor& tensor : metadata.tensors) plan_tensor(tensor);
    for (const DcpValue& value : metadata.values) {
      const Meaning meaning = meaning_of(value.path);
      if (meaning.kind != Meaning::kIgnored && meaning.kind != Meaning::kWeight)
        tasks_[value.entry.file].push_back({value.entry, value.key, meaning});
    }
    for (auto& [file, tasks] : tasks_) read_file(file, tasks);
    finish_groups();
    if (!updates_.empty()) {
      if (*updates_.begin() == *updates_.rbegin())
        contents_.state.updates = *updates_.begin();
      else
        contents_.state.no_optimizer_state = concat("its parameters were updated from ", *updates_.begin(), " to ",
                                                    *updates_.rbegin(), " times, which this optimizer cannot continue");
    }
  }

 private:
  struct Task {
    DcpEntry entry;
    std::string key;
    Meaning meaning;
    std::optional<std::size_t> tensor = {};  // index into the contents' tensors
    std::vector<std::int64_t> offsets = {}, sizes = {};
  };

  // Old metadata do not tell the nesting: there the first word is taken for a key of its own, unless weights of other
  // words show that "model." belongs to the names.
  void restore_paths(DcpMetadata& metadata) const {
    const auto first_word = [](const std::string& key) { return key.substr(0, key.find('.')); };
    bool nested = true;
    for (const DcpTensor& tensor : metadata.tensors)
      nested = nested && (first_word(tensor.key) == "model" || is_one_of(first_word(tensor.key), kOptimizerWords));
    const auto restore = [&](const std::string& key, std::vector<std::string>& path) {
      if (!path.empty()) return;
      const std::string word = first_word(key);
      const bool split = word.size() < key.size() && (nested || word != "model") &&
                         (word == "model" || is_one_of(word, kOptimizerWords) || is_one_of(word, kScheduleWords) ||
                          word == "train_state");
      path = split ? std::vector{word, key.substr(word.size() + 1)} : std::vector{key};
    };
    for (DcpTensor& tensor : metadata.tensors) restore(tensor.key, tensor.path);
    for (DcpValue& value : metadata.values) restore(value.key, value.path);
  }

  void plan_tensor(const DcpTensor& tensor) {
    const Meaning meaning = meaning_of(tensor.path);
    const bool is_number =
        (meaning.kind == Meaning::kState && meaning.field == "step") || meaning.kind == Meaning::kTrainState;
    if (meaning.kind == Meaning::kIgnored || meaning.kind == Meaning::kGroup || meaning.kind == Meaning::kSchedule)
      return;
    // Pieces are checked before any file is looked for; their places are filled in later.
    LogicalTensor out{.name = tensor.key, .kind = "tensor", .dtype = tensor.dtype, .shape = tensor.shape};
    for (const DcpChunk& chunk : tensor.chunks) {
      const bool is_scalar = tensor.shape.empty() && chunk.sizes.empty() && chunk.offsets.empty();
      out.pieces.push_back({.offsets = is_scalar ? std::vector<std::int64_t>{0} : chunk.offsets,
                            .sizes = is_scalar ? std::vector<std::int64_t>{1} : chunk.sizes});
    }
    check_pieces(where_, out);
    for (std::size_t i = 0; i < tensor.chunks.size(); ++i)
      tasks_[tensor.chunks[i].entry.file].push_back({tensor.chunks[i].entry, tensor.key, meaning,
                                                     is_number ? std::nullopt : std::optional(contents_.tensors.size()),
                                                     out.pieces[i].offsets, out.pieces[i].sizes});
    if (is_number) return;
    out.name = meaning.name;
    out.kind = meaning.kind == Meaning::kWeight ? "weight" : meaning.field;
    out.pieces.clear();
    contents_.tensors.push_back(std::move(out));
  }

  void read_file(const std::string& name, std::vector<Task>& tasks) {
    const io::MappedFile map = io::MappedFile::open(path_inside(folder_, name, where_));
    const std::size_t index = contents_.files.size();
    contents_.files.push_back({.path = map.path(), .bytes = map.size(), .archives = {}});
    for (const Task& task : tasks) {
      INTARSIA_CHECK(kFormat, task.entry.offset <= map.size() && task.entry.length <= map.size() - task.entry.offset,
                     printable(map.path()), " has ", map.size(), " bytes; the metadata say that \"",
                     printable(task.key), "\" has ", task.entry.length, " from byte ", task.entry.offset,
                     " on: it is cut off");
      contents_.files[index].archives.emplace_back(task.entry.offset, task.entry.offset + task.entry.length);
      const auto archive = TorchArchive::read(map.view(task.entry.offset, task.entry.length),
                                              concat(map.path(), ", \"", task.key, "\""), RecordCheck::kStructure);
      if (task.tensor) {
        add_piece(task, index, archive);
      } else {
        read_value(task, archive);
      }
    }
  }

  void add_piece(const Task& task, std::size_t file, const TorchArchive& archive) {
    const auto tensor = archive.tensor(archive.root());
    LogicalTensor& out = contents_.tensors[*task.tensor];
    TensorPiece piece{.file = file, .begin = 0, .offsets = task.offsets, .sizes = task.sizes};
    INTARSIA_CHECK(
        kFormat, tensor && tensor->is_contiguous() && tensor->dtype == out.dtype && tensor->numel() == piece.numel(),
        printable(archive.name()), " is ",
        tensor ? concat(short_name(tensor->dtype), " ", shape_text(tensor->shape)) : archive.root().describe(),
        ", the metadata say ", short_name(out.dtype), " ", shape_text(task.sizes));
    piece.begin = task.entry.offset + tensor->begin;
    out.pieces.push_back(std::move(piece));
  }

  void read_value(const Task& task, const TorchArchive& archive) {
    const PickleValue root = archive.root();
    const auto number = number_of(archive, root);
    switch (task.meaning.kind) {
      case Meaning::kState:
        if (task.meaning.field == "step" && count_of(number)) updates_.insert(*count_of(number));
        return;
      case Meaning::kTrainState:
        if (task.meaning.field == "step") contents_.state.step = count_of(number);
        if (task.meaning.field == "ntokens_seen") contents_.state.tokens = count_of(number);
        return;
      case Meaning::kSchedule: {
        const auto first = root.kind() == PickleKind::kList && root.size() > 0 ? root[0].number() : number;
        if (first) contents_.state.schedule[task.meaning.field] = *first;
        return;
      }
      case Meaning::kGroup:
        read_group(task.meaning, root);
        return;
      default:
        return;
    }
  }

  void read_group(const Meaning& meaning, const PickleValue& value) {
    ParameterGroup& group = groups_[meaning.name];
    const std::string& field = meaning.field;
    if ((field == "lr" || field == "initial_lr" || field == "eps" || field == "weight_decay") && value.number())
      group.numbers[field] = *value.number();
    if (field == "betas" && value.size() == 2 && value[0].number() && value[1].number()) {
      group.numbers["beta1"] = *value[0].number();
      group.numbers["beta2"] = *value[1].number();
    }
    if (field == "params")
      for (std::size_t i = 0; i < value.size(); ++i)
        if (value[i].text()) group.names.emplace_back(*value[i].text());
  }

  // With flattened optimizer keys each parameter is a group of its own; equal ones are put together. Where the groups
  // stand there too, as write_dcp has them, they are taken.
  void finish_groups() {
    std::map<std::map<std::string, double>, std::vector<std::string>> merged;
    for (auto& [name, group] : groups_) {
      const bool is_number = !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
      if (is_number) {
        contents_.state.groups.push_back(std::move(group));
      } else {
        merged[group.numbers].push_back(name);
      }
    }
    if (!contents_.state.groups.empty()) return;
    for (auto& [numbers, names] : merged) contents_.state.groups.push_back({std::move(names), numbers});
  }

  std::string folder_, where_;
  CheckpointContents& contents_;
  std::map<std::string, std::vector<Task>> tasks_;  // by file
  std::map<std::string, ParameterGroup> groups_;
  std::set<std::int64_t> updates_;
};

bool has(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_dcp_folder(const fs::path& path) {
  std::error_code error;
  if (has(path / ".metadata")) return true;
  if (!fs::is_directory(path, error)) return false;
  for (const std::string& name : io::list_directory(path.string()))
    if (name.ends_with(".distcp")) return true;
  return false;
}

// torchtitan's step-N of the highest N; empty: none.
fs::path last_step(const fs::path& path) {
  const std::string name = highest_numbered(
      path.string(), "step-", [](const std::string& folder) { return has(fs::path(folder) / ".metadata"); });
  return name.empty() ? fs::path() : path / name;
}

void read_accelerate(const std::string& path, CheckpointContents& contents) {
  contents.format = "PyTorch DCP (Accelerate)";
  DcpFolder((fs::path(path) / "pytorch_model_fsdp_0").string(), contents).read();
  if (has(fs::path(path) / "optimizer_0")) DcpFolder((fs::path(path) / "optimizer_0").string(), contents).read();
  read_accelerate_files(path, contents);
}

}  // namespace

bool is_dcp(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) &&
         (is_dcp_folder(path) || is_dcp_folder(fs::path(path) / "pytorch_model_fsdp_0") || !last_step(path).empty());
}

LogicalCheckpoint open_dcp(const std::string& path) {
  CheckpointContents contents;
  contents.path = path;
  contents.format = "PyTorch DCP";
  if (is_dcp_folder(path)) {
    DcpFolder(path, contents).read();
  } else if (const fs::path step = last_step(path); !step.empty()) {
    DcpFolder(step.string(), contents).read();
  } else {
    read_accelerate(path, contents);
  }
  bool has_state = false;
  for (const LogicalTensor& tensor : contents.tensors) has_state = has_state || tensor.kind != "weight";
  if (!has_state) contents.state.no_optimizer_state = "it was saved without the optimizer";
  if (!contents.state.step) contents.state.step = contents.state.updates;
  return LogicalCheckpoint(std::move(contents));
}

}  // namespace intarsia::formats
