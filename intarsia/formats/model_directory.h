// The weights of a Hugging Face model directory: model.safetensors, or model.safetensors.index.json with its shards, or
// the same as pytorch_model.bin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "intarsia/formats/tensor_file.h"

namespace intarsia::formats {

// A tensor and the file that has it.
struct LocatedTensor {
  const TensorFile* file = nullptr;
  const TensorInfo* tensor = nullptr;
};

// Open files of one model. Invariant: every name stands in one file only, and an index and its shards agree.
// Lifetime: located tensors end with the object (moving it keeps them). Threads: const members may be called at once.
class ModelDirectory {
 public:
  // Opens and maps all files; of safetensors no weights are read, of pytorch_model.bin all, for their checksums.
  // Safetensors are preferred, and of a single file and an index the single file is taken, as transformers does. A name
  // in an index must stay inside the folder, also after links are followed, else it is refused before anything is
  // opened; the one exception is the Hugging Face cache, whose snapshots link to the blobs beside them. Errors: kIo for
  // a missing folder or shard; kFormat; kUnsupported when there are only files of another kind.
  static ModelDirectory open(const std::string& directory);

  const std::string& path() const { return path_; }
  const std::vector<TensorFile>& files() const { return files_; }
  std::size_t num_tensors() const { return index_.size(); }

  // `tensor` is null when no file has the name.
  LocatedTensor find(std::string_view name) const;

 private:
  ModelDirectory() = default;
  void open_shards(const std::string& index_path, bool is_torch);

  std::string path_;
  std::vector<TensorFile> files_;
  std::unordered_map<std::string_view, LocatedTensor> index_;  // keys and values point into files_
};

}  // namespace intarsia::formats
