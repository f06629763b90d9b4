// Tokens laid end to end, wherever they lie, and the samples cut from them. Internal to data; open_dataset() makes
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/data/dataset.h"

namespace intarsia::data {

// Tokens in one block of memory.
struct TokenBlock {
  std::string name;  // of the file, for messages
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;  // little-endian unsigned integers
  int token_bytes = 4;              // 2 or 4
  std::int64_t size = 0;            // tokens

  std::int64_t at(std::int64_t i) const;
};

TokenBlock block_of(std::string name, std::vector<std::int32_t> tokens);

// Blocks one after another. Threads: const members may be called at once.
class TokenStream {
 public:
  // vocab_size: ids at and above it are refused; 0: unchecked.
  explicit TokenStream(std::int64_t vocab_size) : vocab_size_(vocab_size) {}

  // Checks the ids at once in blocks of up to 2^24 tokens. Errors: kData.
  void add(TokenBlock block);

  std::int64_t size() const { return size_; }
  const std::vector<TokenBlock>& blocks() const { return blocks_; }

  // Writes tokens [begin, begin + count). Errors: kData for an id outside the vocabulary, with file, place, id and
  // vocabulary; kInternal outside the stream.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;

 private:
  void check(const TokenBlock& block, std::int64_t position, std::int64_t id) const;

  std::int64_t vocab_size_;
  std::int64_t size_ = 0;
  std::vector<TokenBlock> blocks_;
  std::vector<std::int64_t> begins_;  // of each block in the stream
};

// Pack::kConcat. `pad` fills the last sample with Tail::kPad. Errors: kData when no sample comes out.
std::unique_ptr<Dataset> cut_stream(TokenStream stream, const DataOptions& options, std::int64_t pad,
                                    DataSummary summary);

// Pack::kOff: a document ends with each `end_of_text` token. Documents of one token have no target and are left out.
// Errors: kData for a document that is too long, or when no sample comes out.
std::unique_ptr<Dataset> cut_documents(TokenStream stream, const DataOptions& options, std::int64_t end_of_text,
                                       DataSummary summary);

}  // namespace intarsia::data
