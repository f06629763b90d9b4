// What a Tokenizer holds, and how a text becomes words. Internal to formats.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "intarsia/formats/tokenizer.h"
#include "intarsia/formats/tokenizer_added.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats {

struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
};
template <typename Value>
using BytesMap = std::unordered_map<std::string, Value, BytesHash, std::equal_to<>>;

// The text between added tokens as the normalizer leaves it.
std::string normalize(const TokenizerSpec& spec, std::string_view text);

struct Tokenizer::Impl {
  // What one encoding thread needs for itself.
  struct Scratch {
    std::vector<WordSplitter> splitters;  // one for each step
    BytesMap<std::vector<std::int32_t>> words;
    std::vector<std::int32_t> merged;
  };

  TokenizerSpec spec;
  std::string name;
  std::optional<std::int32_t> end_of_text;
  std::vector<std::string> bytes;      // by id
  std::vector<bool> special;           // by id
  BytesMap<std::int32_t> id_of_bytes;  // the BPE vocabulary; with byte fallback by the tokens' own text
  std::vector<std::int16_t> byte_of;   // by id, with byte fallback: the byte of a byte token, else -1
  std::array<std::int32_t, 256> id_of_byte;
  BpeMerges merges;
  AddedTokenFinder raw_added, normalized_added;
  mutable std::mutex scratch_mutex;
  mutable std::vector<std::unique_ptr<Scratch>> idle_scratch;

  void read_byte_level();
  void read_characters();

  std::unique_ptr<Scratch> take_scratch() const {
    {
      const std::lock_guard lock(scratch_mutex);
      if (!idle_scratch.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(idle_scratch.back());
        idle_scratch.pop_back();
        return scratch;
      }
    }
    auto scratch = std::make_unique<Scratch>();
    for (const PreTokenizeStep& step : spec.steps) scratch->splitters.emplace_back(step.pattern);
    return scratch;
  }

  void give_back(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(scratch_mutex);
    idle_scratch.push_back(std::move(scratch));
  }

  // Text without added tokens; `first`: nothing stands before it.
  template <typename OnWord>
  void cut_into_words(std::string_view text, bool first, std::size_t step, Scratch& scratch,
                      const OnWord& on_word) const {
    if (text.empty()) return;
    if (step == spec.steps.size()) return on_word(text);
    switch (spec.steps[step].kind) {
      case PreTokenizeStep::kPrefixSpace:
        if (text.front() == ' ') return cut_into_words(text, first, step + 1, scratch, on_word);
        return cut_into_words(concat(' ', text), first, step + 1, scratch, on_word);
      case PreTokenizeStep::kMetaspace: {
        const PreTokenizeStep::Where prepend = spec.steps[step].prepend;
        std::string spaced = replace_all(text, " ", kMetaspaceMark);
        if (!spaced.starts_with(kMetaspaceMark) &&
            (prepend == PreTokenizeStep::kAlways || (prepend == PreTokenizeStep::kFirst && first))) {
          spaced.insert(0, kMetaspaceMark);
        }
        return cut_into_words(spaced, first, step + 1, scratch, on_word);
      }
      case PreTokenizeStep::kWords:
        scratch.splitters[step].split(text, [&](std::string_view piece) {
          cut_into_words(piece, std::exchange(first, false), step + 1, scratch, on_word);
        });
    }
  }

  // Calls word(text) and token(id, text) for what a piece between added tokens that are looked for first becomes;
  // `first`: nothing stands before the piece.
  template <typename OnWord, typename OnToken>
  void walk(std::string_view piece, bool first, Scratch& scratch, const OnWord& on_word,
            const OnToken& on_token) const {
    std::string normal;
    if (!spec.normalize.empty()) {
      normal = normalize(spec, piece);
      piece = normal;
    }
    normalized_added.cut(
        piece,
        [&](std::string_view part) { cut_into_words(part, first && part.data() == piece.data(), 0, scratch, on_word); },
        on_token);
  }

  // Appends the ids of a word.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  void start_tokens(std::string_view word, std::vector<std::int32_t>& out) const;
  const std::vector<std::int32_t>& merge(std::string_view word, std::vector<std::int32_t>& out) const;
};

}  // namespace intarsia::formats
