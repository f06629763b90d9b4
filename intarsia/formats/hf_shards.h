// How the weights of a Hugging Face directory are divided among files of limited size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/formats/safetensors_writer.h"

namespace intarsia::formats {

// A pure function of its arguments, so that every rank computes the same.
class HfShards {
 public:
  // Takes tensors in their order; a file is closed when the next tensor would bring it above `max_bytes` of weights, so
  // that only a single tensor can be larger. 0: one file.
  HfShards(const std::vector<TensorDecl>& tensors, std::int64_t max_bytes);

  std::size_t size() const { return shards_.size(); }
  const std::vector<TensorDecl>& operator[](std::size_t shard) const { return shards_[shard]; }
  // "model.safetensors", or "model-00001-of-00003.safetensors" for shard 0 of 3.
  std::string file_name(std::size_t shard) const;
  // The text of model.safetensors.index.json, as transformers writes it; empty where there is one file.
  std::string index_text() const;

 private:
  std::vector<std::vector<TensorDecl>> shards_;
  std::int64_t bytes_ = 0, numel_ = 0;
};

inline constexpr const char* kHfIndexName = "model.safetensors.index.json";

}  // namespace intarsia::formats
