// Tokens laid end to end, wherever they lie, and the samples cut from them. Internal to data; open_dataset() makes
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "intarsia/data/dataset.h"
#include "intarsia/formats/token_file.h"

namespace intarsia::data {

// Tokens of one file, mapped, or of documents, in memory.
struct TokenBlock {
  std::string name;  // for messages
  std::variant<formats::TokenFile, std::vector<std::int32_t>> tokens;
  std::optional<std::int32_t> end_of_text;  // the token that ends a document, where known

  std::int64_t size() const;
  // Tokens [begin, begin + out.size()). Errors: TokenFile::read's.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;
};

// A token file. Ids are held against vocab_size (0: unchecked): at once in files of up to 2^24 tokens, in larger ones
// as they are read. Errors: TokenFile's.
TokenBlock open_block(const std::string& path, std::int64_t vocab_size);

// Blocks one after another. Threads: const members may be called at once.
class TokenStream {
 public:
  void add(TokenBlock block);

  std::int64_t size() const { return size_; }
  const std::vector<TokenBlock>& blocks() const { return blocks_; }

  // Tokens [begin, begin + out.size()). Errors: kData for an id outside the vocabulary, with file, place and id;
  // kInternal outside the stream.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;

 private:
  std::int64_t size_ = 0;
  std::vector<TokenBlock> blocks_;
  std::vector<std::int64_t> begins_;  // of each block in the stream
};

// Pack::kConcat. Errors: kData when no sample comes out.
std::unique_ptr<Dataset> cut_stream(TokenStream stream, const DataOptions& options, DataSummary summary);

// Pack::kOff: a document ends with each end-of-text token, and with its block. Documents of one token have no target
// and are left out. Errors: kData for a document that is too long, or when no sample comes out; kConfig for a block
// whose end-of-text token is not known.
std::unique_ptr<Dataset> cut_documents(TokenStream stream, const DataOptions& options, DataSummary summary);

}  // namespace intarsia::data
