// Writes any checkpoint as a Hugging Face directory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/formats/peers/copy_tensor.h"
#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

struct HfWrite {
  DType dtype = DType::kF32;         // of the weights: F32, BF16 or F16
  std::int64_t max_shard_bytes = 0;  // of weights in one file; 0: all are in one
  // What to write under which name, where the model's config says so; empty: every weight under its own name, of tied
  // ones only the first.
  std::vector<std::pair<std::string, const LogicalTensor*>> weights = {};
  std::string config = {};           // text of config.json; empty: none is written
  std::string copy_from = {};        // folder whose tokenizer's files are copied, where they are there; empty: none
  std::string optimizer_state = {};  // a file for KIND.NAME ("exp_avg.model.norm.weight"), fp32; empty: none
};

// Writes DIRECTORY/model.safetensors, or shards and their index, the optimizer's file, the tokenizer's files, and
// config.json last, so that a folder without it was not finished. fp32 is exact; 16 bits are rounded to nearest, ties
// to even. Memory: buffers of 4 MiB, whatever the model's size. Errors: kUsage when the folder holds a model already,
// or when the optimizer's state is asked for and not there; kIo; those of LogicalCheckpoint::read.
void write_hf(const LogicalCheckpoint& checkpoint, const std::string& directory, const HfWrite& options,
              const WriteProgress& progress = {});

}  // namespace intarsia::formats
