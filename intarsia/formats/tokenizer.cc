#include "intarsia/formats/tokenizer.h"

#include <array>
#include <filesystem>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_added.h"
#include "intarsia/formats/tokenizer_config.h"
#include "intarsia/formats/tokenizer_text.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kCachedWords = 1 << 16;
constexpr std::size_t kLongestCachedWord = 64;
constexpr std::size_t kProgressBytes = 1 << 18;

struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
};
template <typename Value>
using BytesMap = std::unordered_map<std::string, Value, BytesHash, std::equal_to<>>;

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

// Those that are looked for before or after normalization; the latter as it leaves them.
AddedTokenFinder finder(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    if (normalized) tokens.back().content = normalize(spec, token.content);
    if (tokens.back().content.empty()) tokens.pop_back();
  }
  return AddedTokenFinder(std::move(tokens));
}

// Whether U+2581 stands behind another character in any token that merges make. If in none, no merge crosses the place
// before a run of U+2581, and a text may be cut there.
bool merges_cross_spaces(const TokenizerSpec& spec) {
  for (const BpeMerge& merge : spec.merges) {
    std::string_view token = spec.tokens[static_cast<std::size_t>(merge.result)];
    while (token.starts_with(kMetaspace)) token.remove_prefix(kMetaspace.size());
    if (token.find(kMetaspace) != token.npos) return true;
  }
  return false;
}

}  // namespace

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

  void read_byte_level() {
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

  void read_characters() {
    byte_of.assign(spec.tokens.size(), -1);
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      if (spec.in_model[i]) id_of_bytes.emplace(spec.tokens[i], id);
      if (const std::optional<unsigned char> byte = from_byte_token(spec.tokens[i])) {
        if (spec.in_model[i] && spec.tokens[i] == byte_token(*byte)) id_of_byte[*byte] = id;
        byte_of[i] = *byte;
        bytes[i] = static_cast<char>(*byte);
      } else {
        bytes[i] = replace_all(spec.tokens[i], kMetaspace, " ");
      }
    }
    if (!merges_cross_spaces(spec)) spec.steps.push_back({PreTokenizeStep::kWords, WordPattern::kSpaceRuns});
  }

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
        std::string spaced = replace_all(text, " ", kMetaspace);
        if (!spaced.starts_with(kMetaspace) &&
            (prepend == PreTokenizeStep::kAlways || (prepend == PreTokenizeStep::kFirst && first))) {
          spaced.insert(0, kMetaspace);
        }
        return cut_into_words(spaced, first, step + 1, scratch, on_word);
      }
      case PreTokenizeStep::kWords:
        scratch.splitters[step].split(text, [&](std::string_view piece) {
          cut_into_words(piece, std::exchange(first, false), step + 1, scratch, on_word);
        });
    }
  }

  // The tokens of single bytes or, with byte fallback, of single characters, before merges.
  void start_tokens(std::string_view word, std::vector<std::int32_t>& out) const {
    if (!spec.byte_fallback) {
      for (const unsigned char byte : word) out.push_back(id_of_byte[byte]);
      return;
    }
    for (std::size_t at = 0; at < word.size();) {
      const std::string_view character = word.substr(at, utf8_part(word, at).length);
      const auto found = id_of_bytes.find(character);
      if (found != id_of_bytes.end()) {
        out.push_back(found->second);
      } else {
        for (const unsigned char byte : character) out.push_back(id_of_byte[byte]);
      }
      at += character.size();
    }
  }

  const std::vector<std::int32_t>& merge(std::string_view word, std::vector<std::int32_t>& out) const {
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

  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
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
};

Tokenizer::Tokenizer(TokenizerSpec spec, std::string name, std::optional<std::int32_t> end_of_text) {
  auto impl = std::make_shared<Impl>();
  const std::size_t size = spec.tokens.size();
  impl->spec = std::move(spec);
  impl->name = std::move(name);
  impl->end_of_text = end_of_text;
  impl->bytes.resize(size);
  impl->special.resize(size);
  impl->id_of_byte.fill(-1);
  if (impl->spec.byte_fallback) {
    impl->read_characters();
  } else {
    impl->read_byte_level();
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    INTARSIA_CHECK(kFormat, impl->id_of_byte[byte] >= 0, impl->name, ": the vocabulary has no token for byte ", byte,
                   impl->spec.byte_fallback ? "; byte_fallback needs <0x00> to <0xFF>"
                                            : "; a byte-level BPE has one for each of the 256 bytes");
  }
  for (const AddedToken& token : impl->spec.added) impl->special[static_cast<std::size_t>(token.id)] = token.special;
  INTARSIA_CHECK(kFormat, !end_of_text || (*end_of_text >= 0 && static_cast<std::size_t>(*end_of_text) < size),
                 impl->name, ": the end-of-text id ", end_of_text.value_or(0), " is not in the vocabulary of ", size);
  try {
    impl->merges = BpeMerges(impl->spec.merges);
  } catch (const Error& error) {
    fail(error.kind(), impl->name, ": ", error.what());
  }
  impl->raw_added = finder(impl->spec, false);
  impl->normalized_added = finder(impl->spec, true);
  impl_ = std::move(impl);
}

Tokenizer Tokenizer::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path file = is_folder ? fs::path(path) / "tokenizer.json" : fs::path(path);
  INTARSIA_CHECK(kIo, fs::exists(file, ignored), "there is no ", file.string(),
                 is_folder ? ": a tokenizer is a folder that has a tokenizer.json (tokenizer.model files are not read)"
                           : ": give a folder with a tokenizer.json, or that file");
  TokenizerSpec spec = parse_tokenizer_json(io::read_text_file(file.string(), kMaxTokenizerFileBytes), file.string());
  const std::optional<std::int32_t> end_of_text = find_end_of_text(file.parent_path().string(), spec);
  return Tokenizer(std::move(spec), file.string(), end_of_text);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special, const Progress& progress) const {
  const std::optional<std::size_t> invalid = first_invalid_utf8(text);
  INTARSIA_CHECK(kData, !invalid, "the text is not UTF-8: byte ", invalid.value_or(0), " of ", text.size(),
                 "; convert it, for example with iconv -t UTF-8");
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (add_special) ids = impl_->spec.prefix;

  std::unique_ptr<Impl::Scratch> scratch = impl_->take_scratch();
  std::size_t unreported = 0;
  const auto on_word = [&](std::string_view word) {
    impl_->encode_word(word, *scratch, ids);
    unreported += word.size();
    if (progress && unreported >= kProgressBytes) progress(std::exchange(unreported, 0));
  };
  const auto on_token = [&](std::int32_t id) { ids.push_back(id); };
  const auto on_raw = [&](std::string_view piece) {
    const bool first = piece.data() == text.data();
    const std::string normal = impl_->spec.normalize.empty() ? std::string() : normalize(impl_->spec, piece);
    if (!impl_->spec.normalize.empty()) piece = normal;
    const auto on_normal = [&](std::string_view part) {
      impl_->cut_into_words(part, first && part.data() == piece.data(), 0, *scratch, on_word);
    };
    impl_->normalized_added.cut(piece, on_normal, on_token);
  };
  impl_->raw_added.cut(text, on_raw, on_token);
  impl_->give_back(std::move(scratch));

  if (add_special) ids.insert(ids.end(), impl_->spec.suffix.begin(), impl_->spec.suffix.end());
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_document(std::string_view text, const Progress& progress) const {
  INTARSIA_CHECK(kConfig, impl_->end_of_text, impl_->name,
                 ": no end-of-text token to put after a document; give eos_token in tokenizer_config.json");
  std::vector<std::int32_t> ids = encode(text, true, progress);
  if (impl_->spec.suffix.empty() || impl_->spec.suffix.back() != *impl_->end_of_text) {
    ids.push_back(*impl_->end_of_text);
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(impl_->bytes.size()); }

std::optional<std::int32_t> Tokenizer::end_of_text() const { return impl_->end_of_text; }

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  INTARSIA_CHECK(kUsage, id >= 0, "token id ", id, " is negative; ids are 0 to ", vocab_size() - 1);
  return id < vocab_size() ? std::string_view(impl_->bytes[static_cast<std::size_t>(id)]) : std::string_view();
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<std::size_t>(id)];
}

std::int64_t Tokenizer::text_bytes(std::span<const std::int32_t> ids) const {
  std::int64_t total = 0;
  for (const std::int32_t id : ids) {
    if (!is_special(id)) total += static_cast<std::int64_t>(token_bytes(id).size());
  }
  return total;
}

const std::string& Tokenizer::name() const { return impl_->name; }

std::string StreamDecoder::push(std::int32_t id) {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  return tokenizer_.impl_->spec.byte_fallback ? push_fallback(id) : push_byte_level(bytes);
}

std::string StreamDecoder::push_byte_level(std::string_view bytes) {
  held_ += bytes;
  std::size_t complete = 0;
  while (complete < held_.size()) {
    const Utf8Part part = utf8_part(held_, complete);
    if (part.kind == Utf8Part::kCutShort) break;
    complete += part.length;
  }
  std::string out = replace_invalid_utf8(std::string_view(held_).substr(0, complete));
  held_.erase(0, complete);
  return out;
}

std::string StreamDecoder::push_fallback(std::int32_t id) {
  if (id >= tokenizer_.vocab_size()) return {};
  const std::int16_t byte = tokenizer_.impl_->byte_of[static_cast<std::size_t>(id)];
  if (byte >= 0) {
    held_ += static_cast<char>(byte);
    return {};
  }
  std::string out = end_of_run();
  std::string_view text = tokenizer_.token_bytes(id);
  if (!begun_ && !text.empty()) {
    begun_ = true;
    if (tokenizer_.impl_->spec.strip_first_space && text.front() == ' ') text.remove_prefix(1);
  }
  return out.append(text);
}

// The text of the byte tokens held back.
std::string StreamDecoder::end_of_run() {
  std::string run = std::exchange(held_, {});
  if (first_invalid_utf8(run)) {
    const std::size_t count = run.size();
    run.clear();
    for (std::size_t i = 0; i < count; ++i) append_utf8(run, 0xFFFD);
  }
  if (begun_ || run.empty()) return run;
  begun_ = true;
  if (tokenizer_.impl_->spec.strip_first_space && run.front() == ' ') run.erase(0, 1);
  return run;
}

std::string StreamDecoder::finish() {
  if (tokenizer_.impl_->spec.byte_fallback) return end_of_run();
  return replace_invalid_utf8(std::exchange(held_, {}));
}

}  // namespace intarsia::formats
