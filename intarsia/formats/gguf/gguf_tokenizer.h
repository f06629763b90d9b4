// The tokenizer inside a GGUF file, in Hugging Face's files.
#pragma once

#include <string>

#include "intarsia/formats/gguf/gguf.h"

namespace intarsia::formats {

struct TokenizerFiles {
  std::string tokenizer;         // tokenizer.json
  std::string tokenizer_config;  // tokenizer_config.json, with the chat template
};

// Two kinds are known: "gpt2", a byte-level BPE with the words of GPT-2, Llama 3, Qwen2 or SmolLM, and "llama", pieces
// with scores, whose merges are made from the scores as transformers makes them.
// Memory: a few times the tokenizer. Errors: kFormat for what is missing or malformed; kUnsupported, by name, for other
// kinds and for keys that would change ids.
TokenizerFiles tokenizer_of_gguf(const GgufFile& file);

}  // namespace intarsia::formats
