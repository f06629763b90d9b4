// Documents, tokenized once and kept as a token file, so that ranks and later runs map it. Internal to data, but for
// programs that want to know where the tokens are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "intarsia/data/dataset.h"

namespace intarsia::data {

// Encodes the documents of the files one after another, each ended by one end-of-text token, and gives the ids of each
// to `out`. Returns the number of documents. Memory: one document and its ids.
// Errors: kIo; kData for documents that cannot be read or tokenized, and for files without any.
std::int64_t tokenize_documents(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                                const std::function<void(std::span<const std::int32_t>)>& out,
                                const TokenizeProgress& progress = {});

// Where tokenize_to_cache() keeps the tokens of these files: "DIR/NAME-HASH.bin", NAME that of the first file, HASH
// over the tokenizer and over path, size and time of change of each file. Errors: kIo for a missing file.
std::string token_cache_path(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                             const std::string& cache_dir);

// Tokenizes the files' documents into token_cache_path() unless it is there, and returns that path. `cache_dir` is made
// where it is missing. One process writes at a time; the file appears whole or not at all.
// Errors: as tokenize_documents'; kIo where the folder cannot be written.
std::string tokenize_to_cache(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                              const std::string& cache_dir, const TokenizeProgress& progress = {});

}  // namespace intarsia::data
