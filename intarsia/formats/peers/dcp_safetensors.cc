// Folders of safetensors whose tensors are pieces: DCP's HuggingFaceStorageWriter with save_distributed.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/formats/peers/dcp_checkpoint.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/formats/strict_json.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInfo = "DCP_SHARDING_INFO";

std::map<std::string, std::string> shard_files(const fs::path& folder) {  // name -> name; sorted
  std::map<std::string, std::string> out;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return out;
  for (const std::string& name : io::list_directory(folder.string()))
    if (name.starts_with("shard-") && name.ends_with(".safetensors")) out.emplace(name, name);
  return out;
}

// Where a tensor of a file begins in the whole one.
std::vector<std::int64_t> offsets_of(const nlohmann::json& info, const TensorInfo& tensor, const std::string& path) {
  const auto entry = info.find(tensor.name);
  if (entry == info.end()) return std::vector<std::int64_t>(tensor.shape.size(), 0);
  const auto offsets = entry->is_object() ? entry->find("saved_offsets") : entry->end();
  const auto is_size = [](const nlohmann::json& number) {
    return number.is_number_integer() && number >= 0 && number <= (std::int64_t{1} << 59);
  };
  INTARSIA_CHECK(kFormat,
                 entry->is_object() && offsets != entry->end() && offsets->is_array() &&
                     offsets->size() == tensor.shape.size() && std::all_of(offsets->begin(), offsets->end(), is_size),
                 printable(path), ": the saved_offsets of \"", printable(tensor.name), "\" in ", kInfo, " are not ",
                 tensor.shape.size(), " numbers of 0 and more");
  return offsets->get<std::vector<std::int64_t>>();
}

}  // namespace

bool is_dcp_safetensors(const std::string& path) { return !shard_files(path).empty(); }

LogicalCheckpoint open_dcp_safetensors(const std::string& path) {
  CheckpointContents contents;
  contents.path = path;
  contents.format = "PyTorch DCP (safetensors)";
  contents.state.no_optimizer_state = "such a checkpoint has the weights only";
  std::map<std::string, std::size_t> index;  // name -> index into the tensors
  for (const auto& [name, same] : shard_files(path)) {
    const SafetensorsFile file = SafetensorsFile::open(path_inside(path, name, path));
    const std::size_t number = contents.files.size();
    contents.files.push_back({.path = file.path(), .bytes = file.num_bytes(), .archives = {}});
    const auto text = file.metadata().find(kInfo);
    INTARSIA_CHECK(kFormat, text != file.metadata().end(), printable(file.path()), " has no ", kInfo,
                   " in its metadata, which says where its pieces lie");
    const nlohmann::json info = parse_strict_json(text->second, concat(file.path(), ", ", kInfo));
    for (const TensorInfo& tensor : file.tensors()) {
      const auto [place, is_new] = index.try_emplace(tensor.name, contents.tensors.size());
      if (is_new) contents.tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
      LogicalTensor& out = contents.tensors[place->second];
      std::vector<std::int64_t> offsets = offsets_of(info, tensor, file.path()), sizes = tensor.shape;
      INTARSIA_CHECK(kFormat, out.dtype == tensor.dtype && out.shape.size() == sizes.size(), printable(file.path()),
                     ": \"", printable(tensor.name), "\" has not the dtype and dimensions that it has in another file");
      // The whole is as large as its pieces reach; a hole is found by the check of pieces.
      for (std::size_t dim = 0; dim < sizes.size(); ++dim)
        out.shape[dim] = std::max(out.shape[dim], offsets[dim] + sizes[dim]);
      if (sizes.empty()) offsets = {0}, sizes = {1};
      out.pieces.push_back({number, file.data_begin() + tensor.begin, std::move(offsets), std::move(sizes)});
    }
  }
  return LogicalCheckpoint(std::move(contents));
}

}  // namespace intarsia::formats
