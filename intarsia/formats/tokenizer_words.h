// Cuts text into the words that byte-pair merges never cross.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace intarsia::formats {

// The known splitting rules. Intarsia runs no pattern that a file brings: a file's pattern is looked up here.
enum class WordPattern {
  kGpt2,
  kLlama3,
  kQwen2,
  kDigits,     // each digit alone, and what lies between
  kNumbers,    // each run of digits, and what lies between
  kMetaspace,  // U+2581 begins a word
  kSpaceRuns,  // the same, but a run of U+2581 is not cut
};

// "gpt2", "llama3", "qwen2", ...
std::string_view name(WordPattern pattern);
// The regular expression, as tokenizer.json files write it where they have one.
std::string_view source(WordPattern pattern);

// Calls out for each word of a text, in order; together the words are the text.
// Threads: one object serves one thread at a time; objects are cheap next to the compiled pattern, which they share.
// Memory: a small match block.
class WordSplitter {
 public:
  explicit WordSplitter(WordPattern pattern);
  WordSplitter(WordSplitter&&) noexcept;
  WordSplitter& operator=(WordSplitter&&) noexcept;
  ~WordSplitter();

  // `text` must be valid UTF-8. Errors: kData when matching exceeds its limit of steps.
  template <typename Out>
  void split(std::string_view text, Out&& out) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = word_end(text, at);
      out(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  struct Match;
  // The end of the word that begins at `at`; always above `at`.
  std::size_t word_end(std::string_view text, std::size_t at);

  std::unique_ptr<Match> match_;
};

}  // namespace intarsia::formats
