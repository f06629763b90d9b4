// What a Hugging Face tokenizer.json says, as plain data: a BPE over bytes (GPT-2, Llama 3, Qwen2) or over characters
// with a fallback to bytes (Llama 2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/formats/bpe.h"
#include "intarsia/formats/tokenizer_words.h"

namespace intarsia::formats {

// A token that is found in the text as a whole, before words and merges.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // dropped by decoding that skips special tokens
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space to its left with it
  bool rstrip = false;       // takes the white space to its right with it
  bool normalized = false;   // looked for after normalization, else before
};

// One step of normalization, applied to the text between added tokens.
struct NormalizeStep {
  enum Kind { kNfc, kPrepend, kReplace };
  Kind kind = kNfc;
  std::string from = {};  // kReplace
  std::string to = {};    // kReplace, kPrepend
};

// U+2581, which character vocabularies write in place of a space.
inline constexpr std::string_view kMetaspaceMark = "\xE2\x96\x81";

// One step of pre-tokenization, applied to every piece that the step before left.
struct PreTokenizeStep {
  // kPrefixSpace: a piece begins with a space. kMetaspace: spaces become U+2581, one stands before a piece that begins
  // without (Where::kFirst: only at the begin of the text). kWords: cut.
  enum Kind { kPrefixSpace, kMetaspace, kWords };
  enum Where { kNever, kFirst, kAlways };
  Kind kind = kWords;
  WordPattern pattern = WordPattern::kGpt2;  // of kWords
  Where prepend = kNever;                    // of kMetaspace
};

struct TokenizerSpec {
  std::vector<std::string> tokens;  // by id, as the file writes them; ids have no gap
  std::vector<bool> in_model;       // by id: in the BPE vocabulary (the others are only added)
  std::vector<BpeMerge> merges;     // strongest first
  bool ignore_merges = false;       // a word that is a token needs no merges
  // Tokens are characters, and a character without a token becomes its bytes, "<0x0A>"; else tokens are written in the
  // byte alphabet (tokenizer_text.h).
  bool byte_fallback = false;
  // What a character without tokens becomes; nothing: it is left out. With fuse_unknown several in a row are one.
  std::optional<std::int32_t> unknown;
  bool fuse_unknown = false;
  bool strip_first_space = false;  // decoding drops one space at the begin of the text
  std::vector<NormalizeStep> normalize;
  std::vector<PreTokenizeStep> steps;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> prefix, suffix;  // ids that the post-processor puts around a text
};

// Limits on a file that may be hostile; far above any tokenizer in use.
inline constexpr std::uint64_t kMaxTokenizerFileBytes = 256u << 20;
inline constexpr std::size_t kMaxVocabSize = 4u << 20;
inline constexpr std::size_t kMaxAddedTokens = 1u << 16;

// Reads the text of a tokenizer.json; `file` is for messages. Every part that changes ids and is not known here is
// refused by name; truncation and padding are not applied (samples are cut elsewhere).
// Errors: kFormat for what is malformed, kUnsupported for what is known but not built.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file);

}  // namespace intarsia::formats
