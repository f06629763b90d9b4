// How words become ids.
#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer_impl.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kCachedWords = 1 << 16;
constexpr std::size_t kLongestCachedWord = 64;

// Whether U+2581 stands behind another character in any token that merges make. If in none, no merge crosses the place
// before a run of U+2581, and a text may be cut there.
bool merges_cross_spaces(const TokenizerSpec& spec) {
  for (const BpeMerge& merge : spec.merges) {
    std::string_view token = spec.tokens[static_cast<std::size_t>(merge.result)];
    while (token.starts_with(kMetaspaceMark)) token.remove_prefix(kMetaspaceMark.size());
    if (token.find(kMetaspaceMark) != token.npos) return true;
  }
  return false;
}

}  // namespace

std::string normalize(const TokenizerSpec& spec, std::string_view text) {
  std::string out(text);
  for (const NormalizeStep& step : spec.normalize) {
    switch (step.kind) {
      case NormalizeStep::kNfc:
        out = normalize_nfc(out);
        break;
      case NormalizeStep::kPrepend:
        if (!out.empty()) out.insert(0, step.to);
        break;
      case NormalizeStep::kReplace:
        out = replace_all(out, step.from, step.to);
        break;
    }
  }
  return out;
}

void Tokenizer::Impl::read_byte_level() {
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::optional<std::string> alphabet = from_byte_alphabet(spec.tokens[i]);
    const auto id = static_cast<std::int32_t>(i);
    if (alphabet && spec.in_model[i]) {
      id_of_bytes.emplace(*alphabet, id);
      if (alphabet->size() == 1) id_of_byte[static_cast<unsigned char>(alphabet->front())] = id;
    }
    // A token outside the alphabet stands for itself.
    bytes[i] = alphabet.value_or(spec.tokens[i]);
  }
}

void Tokenizer::Impl::read_characters() {
  byte_of.assign(spec.tokens.size(), -1);
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (spec.in_model[i]) id_of_bytes.emplace(spec.tokens[i], id);
    if (const std::optional<unsigned char> byte = from_byte_token(spec.tokens[i])) {
      if (spec.in_model[i] && spec.tokens[i] == byte_token(*byte)) id_of_byte[*byte] = id;
      byte_of[i] = *byte;
      bytes[i] = static_cast<char>(*byte);
    } else {
      bytes[i] = replace_all(spec.tokens[i], kMetaspaceMark, " ");
    }
  }
  if (!merges_cross_spaces(spec)) spec.steps.push_back({PreTokenizeStep::kWords, WordPattern::kSpaceRuns});
}

// The tokens of single bytes or, with byte fallback, of single characters, before merges.
void Tokenizer::Impl::start_tokens(std::string_view word, std::vector<std::int32_t>& out) const {
  bool after_unknown = false;
  const auto add_unknown = [&] {
    if (spec.unknown && !(after_unknown && spec.fuse_unknown)) out.push_back(*spec.unknown);
    after_unknown = true;
  };
  if (!spec.byte_fallback) {
    for (const unsigned char byte : word) {
      if (id_of_byte[byte] < 0) {
        add_unknown();
      } else {
        out.push_back(id_of_byte[byte]);
        after_unknown = false;
      }
    }
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, utf8_part(word, at).length);
    at += character.size();
    const auto found = id_of_bytes.find(character);
    if (found != id_of_bytes.end()) {
      out.push_back(found->second);
    } else if (std::any_of(character.begin(), character.end(),
                           [&](char c) { return id_of_byte[static_cast<unsigned char>(c)] < 0; })) {
      add_unknown();
      continue;
    } else {
      for (const unsigned char byte : character) out.push_back(id_of_byte[byte]);
    }
    after_unknown = false;
  }
}

const std::vector<std::int32_t>& Tokenizer::Impl::merge(std::string_view word, std::vector<std::int32_t>& out) const {
  out.clear();
  if (spec.ignore_merges) {
    const auto whole = id_of_bytes.find(word);
    if (whole != id_of_bytes.end()) {
      out.push_back(whole->second);
      return out;
    }
  }
  start_tokens(word, out);
  merges.apply(out);
  return out;
}

void Tokenizer::Impl::encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
  const bool cacheable = word.size() <= kLongestCachedWord;
  if (cacheable) {
    const auto cached = scratch.words.find(word);
    if (cached != scratch.words.end()) {
      out.insert(out.end(), cached->second.begin(), cached->second.end());
      return;
    }
  }
  const std::vector<std::int32_t>& ids = merge(word, scratch.merged);
  out.insert(out.end(), ids.begin(), ids.end());
  if (cacheable && scratch.words.size() < kCachedWords) scratch.words.emplace(word, ids);
}

}  // namespace intarsia::formats
