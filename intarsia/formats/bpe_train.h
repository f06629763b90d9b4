// Learns a byte-level BPE from text and writes it as a Hugging Face tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "intarsia/formats/bpe.h"
#include "intarsia/formats/tokenizer_added.h"
#include "intarsia/formats/tokenizer_words.h"

namespace intarsia::formats {

struct BpeTrainOptions {
  std::int64_t vocab_size = 0;  // all tokens: 256 bytes, merges, special tokens
  WordPattern pattern = WordPattern::kLlama3;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // the first ends a text
  std::int64_t min_count = 2;  // a pair seen less often becomes no token, even if the vocabulary stays smaller
};

struct TrainedBpe {
  std::vector<std::string> tokens;  // bytes by id: id b < 256 is byte b, then the merges in their order
  std::vector<BpeMerge> merges;
  std::int64_t text_bytes = 0;   // that were learned from, special tokens left out
  std::int64_t text_tokens = 0;  // what they become
  std::int64_t num_words = 0;    // different ones
};

// Counts the words of texts, then merges the most frequent pair of neighbours again and again. The result is a function
// of the multiset of words: neither the order of the texts nor the hash function matters. Among pairs of one count the
// one with the smaller ids wins.
// Memory: the different words and the pairs in them. Threads: one at a time.
// Source: Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016, section 3.2.
class BpeTrainer {
 public:
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;  // in merges; may throw to stop

  // Errors: kUsage for a vocabulary that does not hold the bytes and special tokens, or above 2^20.
  explicit BpeTrainer(BpeTrainOptions options);

  // Counts a text (valid UTF-8). Words of more than 256 bytes count as pieces of 256.
  void add(std::string_view text);

  // Errors: kData when no text was added.
  TrainedBpe train(const Progress& progress = {}) const;

  const BpeTrainOptions& options() const { return options_; }

 private:
  BpeTrainOptions options_;
  AddedTokenFinder special_;
  WordSplitter splitter_;
  std::unordered_map<std::string, std::int64_t> counts_;
  std::int64_t text_bytes_ = 0;
};

// Writes tokenizer.json and tokenizer_config.json into `directory` (made if missing); each replaces an older one in one
// step. Errors: kIo.
void write_tokenizer(const std::string& directory, const TrainedBpe& bpe, const BpeTrainOptions& options);

}  // namespace intarsia::formats
