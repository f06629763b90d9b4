#include "intarsia/formats/hf_shards.h"

#include <map>

#include "intarsia/base/text.h"
#include "intarsia/formats/json.h"

namespace intarsia::formats {

HfShards::HfShards(const std::vector<TensorDecl>& tensors, std::int64_t max_bytes) {
  std::int64_t in_shard = 0;
  for (const TensorDecl& tensor : tensors) {
    std::int64_t numel = 1;
    for (const std::int64_t dim : tensor.shape) numel *= dim;
    const std::int64_t bytes = numel * static_cast<std::int64_t>(dtype_size(tensor.dtype));
    if (shards_.empty() || (max_bytes > 0 && in_shard > 0 && in_shard + bytes > max_bytes)) {
      shards_.emplace_back();
      in_shard = 0;
    }
    in_shard += bytes;
    bytes_ += bytes;
    numel_ += numel;
    shards_.back().push_back(tensor);
  }
}

std::string HfShards::file_name(std::size_t shard) const {
  if (shards_.size() == 1) return "model.safetensors";
  const auto digits = [](std::size_t number) {
    const std::string text = std::to_string(number);
    return text.size() < 5 ? std::string(5 - text.size(), '0') + text : text;
  };
  return concat("model-", digits(shard + 1), "-of-", digits(shards_.size()), ".safetensors");
}

std::string HfShards::index_text() const {
  if (shards_.size() <= 1) return "";
  std::map<std::string, std::string> files;  // sorted, as there
  for (std::size_t shard = 0; shard < shards_.size(); ++shard)
    for (const TensorDecl& tensor : shards_[shard]) files.emplace(tensor.name, file_name(shard));
  std::string map;
  for (const auto& [name, file] : files)
    map += concat(map.empty() ? "" : ",\n    ", json_quote(name), ": ", json_quote(file));
  return concat("{\n  \"metadata\": {\n    \"total_parameters\": ", numel_, ",\n    \"total_size\": ", bytes_,
                "\n  },\n  \"weight_map\": {\n    ", map, "\n  }\n}\n");
}

}  // namespace intarsia::formats
