// A GGUF model as a Hugging Face directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "intarsia/base/dtype.h"
#include "intarsia/formats/gguf/gguf.h"

namespace intarsia::formats {

// Called with the bytes written and in all; may throw to stop.
using ConvertProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Writes config.json, tokenizer.json, tokenizer_config.json and model.safetensors to `directory`, which is made; the
// weights come last. Every tensor becomes `dtype` (kF32, kBF16 or kF16, rounded to nearest; kF32 is exact). Models of
// the architectures llama (Mistral too), qwen2 and qwen3 are known. Rows of query and key are put back in Hugging
// Face's order where llama.cpp has changed it. Memory: a row of a tensor. Errors: kUnsupported, by name, for other
// architectures, tensors and keys; kFormat for missing or mis-shaped ones; kUsage for a folder that has a config.json;
// kIo.
void gguf_to_hf(const GgufFile& file, const std::string& directory, DType dtype, const ConvertProgress& progress = {});

}  // namespace intarsia::formats
