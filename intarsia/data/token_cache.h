// Documents, tokenized once and kept as a token file, so that ranks and later runs map it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace intarsia::formats {
class Tokenizer;
}

namespace intarsia::data {

// Where tokenize_to_cache() keeps the tokens of these files: "DIR/NAME-HASH.bin", NAME that of the first file, HASH
// over the tokenizer and over path, size and time of change of each file. Errors: kIo for a missing file.
std::string token_cache_path(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                             const std::string& cache_dir);

// Tokenizes the files' documents into token_cache_path() unless the file exists, and returns that path. One process
// writes at a time; the file appears whole or not at all.
// Errors: kIo, kFormat; kData for documents that cannot be tokenized.
std::string tokenize_to_cache(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                              const std::string& cache_dir);

}  // namespace intarsia::data
