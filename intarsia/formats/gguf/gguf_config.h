// What a GGUF file says about its model, as config.json. Internal to formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/formats/gguf/gguf.h"

namespace intarsia::formats {

// A tensor under Hugging Face's name.
struct GgufWeight {
  const GgufTensor* tensor = nullptr;
  std::string name;
  std::int64_t interleaved_heads = 0;  // above 0: rows of so many heads, each in the order of interleaved RoPE
};

struct GgufModel {
  std::string config;  // config.json
  std::vector<GgufWeight> weights;
};

// Errors: kUnsupported, kFormat.
GgufModel model_of_gguf(const GgufFile& file, DType dtype);

}  // namespace intarsia::formats
