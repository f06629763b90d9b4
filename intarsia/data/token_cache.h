// Documents, tokenized once and kept as a token file, so that ranks and later runs map it. Internal to data, but for
// programs that want to know where the tokens are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "intarsia/data/dataset.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::data {

// What was read to make tokens.
struct DocumentCounts {
  std::int64_t documents = 0;
  std::int64_t bad_lines = 0;
};

// How documents are read and encoded, from `options`; its tokenizer is not null.
// Encodes the documents of the files one after another and gives the tokens of each to `out`. Memory: one document and
// its ids. Errors: kIo; kData for documents that cannot be read or tokenized, and for files without any.
DocumentCounts tokenize_documents(const std::vector<std::string>& paths, const DataOptions& options,
                                  const std::function<void(const formats::MarkedIds&)>& out,
                                  const TokenizeProgress& progress = {});

// Where tokenize_to_cache() keeps the tokens of these files: "DIR/NAME-HASH.bin", NAME that of the first file, HASH
// over the tokenizer, the chat template, what is trained on, and path, size and time of change of each file.
// Errors: kIo for a missing file.
std::string token_cache_path(const std::vector<std::string>& paths, const DataOptions& options);

// Tokenizes the files' documents into token_cache_path() unless it is there, and returns that path. `cache_dir` is made
// where it is missing. One process writes at a time; the file appears whole or not at all.
// Errors: as tokenize_documents'; kIo where the folder cannot be written.
std::string tokenize_to_cache(const std::vector<std::string>& paths, const DataOptions& options,
                              const TokenizeProgress& progress = {});

}  // namespace intarsia::data
