#include "intarsia/formats/bpe_train.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kLongestWord = 256;
constexpr std::int64_t kMaxTrainedVocab = 1 << 20;

struct Word {
  std::vector<std::int32_t> tokens;
  std::int64_t count;
};

using PairKey = std::uint64_t;

PairKey pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<PairKey>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}
std::int32_t left_of(PairKey key) { return static_cast<std::int32_t>(key >> 32); }
std::int32_t right_of(PairKey key) { return static_cast<std::int32_t>(key & 0xFFFFFFFF); }

// Words as tokens, how often each pair of neighbours occurs in them, and where.
class PairIndex {
 public:
  explicit PairIndex(std::vector<Word> words) : words_(std::move(words)), seen_(words_.size(), 0) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<std::int32_t>& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        Pair& pair = pairs_[pair_key(tokens[i], tokens[i + 1])];
        pair.count += words_[w].count;
        if (pair.words.empty() || pair.words.back() != w) pair.words.push_back(w);
      }
    }
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  const std::vector<Word>& words() const { return words_; }

  // The most frequent pair; of those with one count the smallest. Count 0 when no pair is left.
  std::pair<PairKey, std::int64_t> most_frequent() {
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      const std::int64_t count = pairs_[top.key].count;
      if (count == top.count) return {top.key, count};
      // Merges have lowered the count since the entry was made.
      queue_.pop();
      if (count > 0) queue_.push({count, top.key});
    }
    return {0, 0};
  }

  // Replaces the pair by `result` wherever it occurs.
  void merge(PairKey key, std::int32_t result) {
    const std::vector<std::uint32_t> where = std::move(pairs_[key].words);
    pairs_[key].words.clear();
    ++round_;
    grown_.clear();
    for (const std::uint32_t w : where) {
      if (seen_[w] == round_) continue;
      seen_[w] = round_;
      rewrite(w, key, result);
    }
    pairs_[key].count = 0;
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const PairKey pair : grown_) {
      if (pairs_[pair].count > 0) queue_.push({pairs_[pair].count, pair});
    }
  }

 private:
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // every word that has the pair; some have it no more
  };
  struct Entry {
    std::int64_t count;
    PairKey key;
    bool operator<(const Entry& other) const { return std::tie(count, other.key) < std::tie(other.count, key); }
  };

  void rewrite(std::uint32_t w, PairKey key, std::int32_t result) {
    std::vector<std::int32_t>& tokens = words_[w].tokens;
    const std::int64_t count = words_[w].count;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) pairs_[pair_key(tokens[i], tokens[i + 1])].count -= count;
    std::size_t out = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i + 1 < tokens.size() && pair_key(tokens[i], tokens[i + 1]) == key) {
        tokens[out++] = result;
        ++i;
      } else {
        tokens[out++] = tokens[i];
      }
    }
    tokens.resize(out);
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const PairKey pair = pair_key(tokens[i], tokens[i + 1]);
      pairs_[pair].count += count;
      if (tokens[i] == result || tokens[i + 1] == result) {
        std::vector<std::uint32_t>& in = pairs_[pair].words;
        if (in.empty() || in.back() != w) in.push_back(w);
        grown_.push_back(pair);
      }
    }
  }

  std::vector<Word> words_;
  std::vector<std::uint32_t> seen_;  // the round that last rewrote each word
  std::uint32_t round_ = 0;
  std::unordered_map<PairKey, Pair> pairs_;
  std::priority_queue<Entry> queue_;
  std::vector<PairKey> grown_;  // pairs with the round's result
};

std::vector<AddedToken> as_added(const std::vector<std::string>& contents) {
  std::vector<AddedToken> out;
  for (const std::string& content : contents) {
    INTARSIA_CHECK(kUsage, !content.empty(), "a special token is empty");
    for (const AddedToken& other : out) {
      INTARSIA_CHECK(kUsage, other.content != content, "special token \"", printable(content), "\" is given twice");
    }
    AddedToken token;
    token.content = content;
    out.push_back(token);
  }
  return out;
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainOptions options)
    : options_(std::move(options)), special_(as_added(options_.special_tokens)), splitter_(options_.pattern) {
  const auto least = 256 + static_cast<std::int64_t>(options_.special_tokens.size());
  INTARSIA_CHECK(kUsage, options_.vocab_size >= least && options_.vocab_size <= kMaxTrainedVocab, "a vocabulary of ",
                 options_.vocab_size, " tokens: allowed is ", least, " (256 bytes and ", options_.special_tokens.size(),
                 " special) to ", kMaxTrainedVocab);
}

void BpeTrainer::add(std::string_view text) {
  const auto on_word = [&](std::string_view word) {
    for (; !word.empty(); word.remove_prefix(std::min(word.size(), kLongestWord))) {
      ++counts_[std::string(word.substr(0, kLongestWord))];
    }
  };
  special_.cut(
      text,
      [&](std::string_view piece) {
        text_bytes_ += static_cast<std::int64_t>(piece.size());
        splitter_.split(piece, on_word);
      },
      [](std::int32_t, std::string_view) {});
}

TrainedBpe BpeTrainer::train(const Progress& progress) const {
  INTARSIA_CHECK(kData, !counts_.empty(), "no text to learn a tokenizer from");
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts_.begin(), counts_.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  words.reserve(sorted.size());
  for (const auto& [bytes, count] : sorted) {
    Word word{{}, count};
    for (const unsigned char byte : bytes) word.tokens.push_back(byte);
    words.push_back(std::move(word));
  }

  TrainedBpe out;
  out.text_bytes = text_bytes_;
  out.num_words = static_cast<std::int64_t>(words.size());
  std::unordered_map<std::string, std::int32_t> id_of;
  for (int byte = 0; byte < 256; ++byte) {
    out.tokens.emplace_back(1, static_cast<char>(byte));
    id_of[out.tokens.back()] = byte;
  }
  PairIndex index(std::move(words));
  const std::int64_t goal = options_.vocab_size - static_cast<std::int64_t>(options_.special_tokens.size());
  while (static_cast<std::int64_t>(out.tokens.size()) < goal) {
    const auto [key, count] = index.most_frequent();
    if (count < std::max<std::int64_t>(options_.min_count, 1)) break;
    const std::int32_t left = left_of(key), right = right_of(key);
    const std::string bytes = out.tokens[static_cast<std::size_t>(left)] + out.tokens[static_cast<std::size_t>(right)];
    // Another pair may have built the same bytes before; then the merge leads to that token.
    const auto [known, fresh] = id_of.emplace(bytes, static_cast<std::int32_t>(out.tokens.size()));
    if (fresh) out.tokens.push_back(bytes);
    out.merges.push_back({left, right, known->second});
    index.merge(key, known->second);
    if (progress && out.merges.size() % 64 == 0) {
      progress(static_cast<std::int64_t>(out.tokens.size()) - 256, goal - 256);
    }
  }
  for (const Word& word : index.words()) {
    out.text_tokens += word.count * static_cast<std::int64_t>(word.tokens.size());
  }
  return out;
}

}  // namespace intarsia::formats
