// Tokens laid end to end, wherever they lie, and the samples cut from them. Internal to data; open_dataset() makes
// them.
#pragma once

#include <algorithm>
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

// Tokens of documents, in memory.
struct TokensInMemory {
  std::vector<std::int32_t> ids;
  formats::DocumentMap documents;
};

// Tokens of one file, mapped, or in memory.
struct TokenBlock {
  std::string name;  // for messages
  std::variant<formats::TokenFile, TokensInMemory> tokens;
  std::optional<std::int32_t> end_of_text;  // the token that ends a document, where known

  // Where documents end and what is trained on; nullptr where only end-of-text tokens tell, and all is trained on.
  const formats::DocumentMap* documents() const;

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
  // The labels of tokens [begin, begin + ids.size()): the ids, or kNotCounted where they are not trained on.
  void label(std::int64_t begin, std::span<const std::int64_t> ids, std::int64_t* labels) const;
  // Tokens of [begin, end) that are trained on.
  std::int64_t num_trained(std::int64_t begin, std::int64_t end) const;
  // Whether any block has tokens that are not trained on.
  bool has_marks() const;

 private:
  template <typename Visit>
  void for_each_part(std::int64_t begin, std::int64_t count, const Visit& visit) const;

  std::int64_t size_ = 0;
  std::vector<TokenBlock> blocks_;
  std::vector<std::int64_t> begins_;  // of each block in the stream
};

// "FILE", or "FILE and 2 more files": for messages.
std::string name_of(const TokenStream& stream);

// Writes a sample that is tokens [begin, begin + size) of the stream, filled up to seq_len.
void fill_range(const TokenStream& stream, std::int64_t begin, std::int64_t size, std::int64_t seq_len,
                std::int64_t* ids, std::int64_t* labels);

// Calls visit(id) for each token of the block.
template <typename Visit>
void for_each_token(const TokenBlock& block, const Visit& visit) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(block.size(), 1 << 16)));
  for (std::int64_t begin = 0; begin < block.size(); begin += static_cast<std::int64_t>(ids.size())) {
    ids.resize(
        static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(ids.size()), block.size() - begin)));
    block.read(begin, ids);
    for (const std::int64_t id : ids) visit(id);
  }
}

// Pack::kConcat. Errors: kData when no sample comes out.
std::unique_ptr<Dataset> cut_stream(TokenStream stream, const DataOptions& options, DataSummary summary);

// Pack::kOff and Pack::kIsolate. Documents of one token have no target and are left out. Errors: kData for a document
// that is too long, or when no sample comes out; kConfig for a block whose documents are not known.
std::unique_ptr<Dataset> cut_documents(TokenStream stream, const DataOptions& options, DataSummary summary);

}  // namespace intarsia::data
