#include "intarsia/formats/model_directory.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/pickle/torch_file.h"
#include "intarsia/formats/problem_list.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/formats/strict_json.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kTorchSingleName = "pytorch_model.bin";
constexpr const char* kTorchIndexName = "pytorch_model.bin.index.json";

// `is_torch`: as the name that led here says; behind a link the file itself may have any name.
TensorFile open_weights(const std::string& path, bool is_torch) {
  if (is_torch) return open_torch_weights(path);
  return SafetensorsFile::open(path);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, position] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end() && position != path.end();
}

// The folder of a Hugging Face cache that its links point to: CACHE/models--x/snapshots/REVISION has its files as
// links into CACHE/models--x/blobs. Empty for any other folder.
fs::path cache_blobs(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" ? snapshots.parent_path() / "blobs" : fs::path();
}

// The file that an index means by `name`, with all links followed.
std::string resolve_shard(const std::string& index_path, const fs::path& folder, const std::string& tensor,
                          const std::string& name) {
  const auto refuse = [&](const char* cause) {
    fail(ErrorKind::kFormat, printable(index_path), ": \"", printable(tensor), "\" is said to be in \"",
         printable(name), "\", ", cause, "; shards lie in the folder of their index");
  };
  const fs::path relative(name);
  if (name.empty() || name.find('\0') != std::string::npos) refuse("which is no file name");
  if (relative.is_absolute()) refuse("an absolute path");
  for (const fs::path& part : relative)
    if (part == "..") refuse("which leaves the folder");
  std::error_code error;
  const fs::path target = fs::canonical(folder / relative, error);
  INTARSIA_CHECK(kIo, !error, printable(index_path), ": \"", printable(tensor), "\" is said to be in \"",
                 printable(name), "\", which cannot be found: ", error.message(), "; was the model copied completely?");
  const fs::path blobs = cache_blobs(folder);
  if (!lies_in(target, folder) && (blobs.empty() || !lies_in(target, blobs))) refuse("a link that leaves the folder");
  return target.string();
}

void refuse_other_kinds(const std::string& directory) {
  for (const std::string& name : io::list_directory(directory)) {
    INTARSIA_CHECK(kUnsupported, !name.ends_with(".gguf"), printable(directory), " has no ", kSingleName, " but ",
                   printable(name), "; convert it once: intarsia convert ", printable(name), " NEW --to hf");
    for (const char* suffix : {".pt", ".pth", ".msgpack", ".h5"})
      INTARSIA_CHECK(kUnsupported, !name.ends_with(suffix), printable(directory), " has no ", kSingleName, " but ",
                     printable(name), ", which is not read; convert it once with transformers: ",
                     "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW, safe_serialization=True)");
  }
}

}  // namespace

ModelDirectory ModelDirectory::open(const std::string& directory) {
  std::error_code error;
  INTARSIA_CHECK(kIo, fs::is_directory(directory, error), printable(directory),
                 " is not a folder; a model is a Hugging Face directory with config.json and model.safetensors");
  ModelDirectory model;
  model.path_ = directory;
  const auto path = [&](const char* name) { return directory + "/" + name; };
  const auto has = [&](const char* name) { return fs::exists(path(name), error); };
  const char* single = has(kSingleName)        ? kSingleName
                       : has(kIndexName)       ? nullptr
                       : has(kTorchSingleName) ? kTorchSingleName
                                               : nullptr;
  if (single != nullptr) {
    model.files_.push_back(open_weights(path(single), single == kTorchSingleName));
    const TensorFile& file = model.files_.back();
    for (const TensorInfo& tensor : file.tensors()) model.index_.emplace(tensor.name, LocatedTensor{&file, &tensor});
  } else if (has(kIndexName)) {
    model.open_shards(path(kIndexName), false);
  } else if (has(kTorchIndexName)) {
    model.open_shards(path(kTorchIndexName), true);
  } else {
    refuse_other_kinds(directory);
    fail(ErrorKind::kIo, printable(directory), " has no weights: neither ", kSingleName, " nor ", kIndexName, ", nor ",
         kTorchSingleName);
  }
  return model;
}

void ModelDirectory::open_shards(const std::string& index_path, bool is_torch) {
  const Json json = parse_strict_json(io::read_text_file(index_path, kMaxIndexBytes), index_path);
  const auto weight_map = json.find("weight_map");
  INTARSIA_CHECK(kFormat, weight_map != json.end() && weight_map->is_object(), printable(index_path),
                 ": \"weight_map\" must be an object of tensor name to file name");
  const fs::path folder = fs::canonical(path_);
  std::map<std::string, std::string> file_of;   // name in the index -> real path
  std::map<std::string, std::string> shard_of;  // tensor -> real path
  for (const auto& [tensor, name] : weight_map->items()) {
    INTARSIA_CHECK(kFormat, name.is_string(), printable(index_path), ": the file of \"", printable(tensor),
                   "\" must be a text");
    const auto& text = name.get_ref<const std::string&>();
    const auto [entry, is_new] = file_of.try_emplace(text);
    if (is_new) entry->second = resolve_shard(index_path, folder, tensor, text);
    shard_of[tensor] = entry->second;
  }
  // All names are resolved before any file is opened. Two names may be links to one file.
  std::map<std::string, std::string> opened;  // real path -> name in the index
  for (const auto& [name, path] : file_of) opened.emplace(path, name);
  files_.reserve(opened.size());  // index_ points into it
  ProblemList problems;
  for (const auto& [path, name] : opened) {
    files_.push_back(open_weights(path, is_torch));
    const TensorFile& file = files_.back();
    for (const TensorInfo& tensor : file.tensors()) {
      const auto expected = shard_of.find(tensor.name);
      if (expected == shard_of.end())
        problems.add("\"", printable(tensor.name), "\" is in ", printable(name), " but not in the index");
      else if (expected->second != path)
        problems.add("\"", printable(tensor.name), "\" is in ", printable(name), ", the index says ",
                     printable(opened.at(expected->second)));
      const auto [other, is_new] = index_.emplace(tensor.name, LocatedTensor{&file, &tensor});
      if (!is_new)
        problems.add("\"", printable(tensor.name), "\" is in two files, ", printable(name), " and ",
                     printable(opened.at(other->second.file->path())));
    }
  }
  for (const auto& [tensor, path] : shard_of)
    if (!index_.contains(tensor))
      problems.add("\"", printable(tensor), "\" is not in ", printable(opened.at(path)),
                   ", where the index says it is");
  problems.throw_if_any(ErrorKind::kFormat, concat(printable(index_path), " and its shards do not agree"));
}

LocatedTensor ModelDirectory::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? LocatedTensor{} : found->second;
}

}  // namespace intarsia::formats
