// Megatron's indexed datasets: NAME.bin with raw tokens, NAME.idx with what they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

struct IndexedDataset {
  DType dtype = DType::kU16;  // kU8, kI8, kI16, kU16, kI32 or kI64
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> document_ends;  // in tokens; sequences of one document are joined
};

// Reads `index_path`, whose tokens are in a file of `token_bytes` bytes. Modes of multimodal sets are passed over.
// Memory: the index's number of documents. Nothing is allocated before all counts agree with the sizes of both files.
// Errors: kIo; kFormat with the file and the cause; kUnsupported for floats and for sequences that do not lie one after
// another.
// Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py, version 1 of the format.
IndexedDataset read_indexed_dataset(const std::string& index_path, std::uint64_t token_bytes);

}  // namespace intarsia::formats
