// The file .metadata of torch.distributed.checkpoint (DCP). Internal to formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

// Where the bytes of one entry stand: a whole archive of torch.save in a part of a file.
struct DcpEntry {
  std::string file;  // relative to the folder, as the metadata say it
  std::uint64_t offset = 0, length = 0;
};

struct DcpChunk {
  std::vector<std::int64_t> offsets, sizes;
  DcpEntry entry;
};

struct DcpTensor {
  std::string key;
  std::vector<std::string> path;  // of keys in the nested dict that was saved; empty where it is not told
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<DcpChunk> chunks;
};

// Any other Python value.
struct DcpValue {
  std::string key;
  std::vector<std::string> path;
  DcpEntry entry;
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;
  std::vector<DcpValue> values;
};

// Reads FOLDER/.metadata. Memory: some times the file's size. Errors: kFormat, kUnsupported for entries that are
// transformed (packed). Source: PyTorch 2.15, torch/distributed/checkpoint/{metadata,filesystem}.py.
DcpMetadata read_dcp_metadata(const std::string& folder);

}  // namespace intarsia::formats
