// A LoRA adapter merged into its model: a Hugging Face directory that needs neither.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "intarsia/base/dtype.h"

namespace intarsia::cli {

struct MergedModel {
  std::size_t tensors = 0;  // written
  std::size_t layers = 0;   // of them changed by the adapter
};

// Writes W + scale B A, computed in fp32, for each adapted layer of the model in `base`, and all else as it is there,
// to the new folder `destination`. `dtype`: of all weights; nothing: each keeps its own. Tokenizer, chat template and
// generation_config.json come from the adapter, else from the base.
// Memory: the adapter in fp32, and a piece of a weight. Errors: kUsage when `base` is empty (a path in
// adapter_config.json is not followed) or the destination has a config.json; those of plan::MergedWeights and
// formats::account_tensors; kIo.
MergedModel merge_adapter(const std::string& adapter, const std::string& base, const std::string& destination,
                          std::optional<DType> dtype, const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace intarsia::cli
