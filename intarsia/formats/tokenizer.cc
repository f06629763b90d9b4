#include "intarsia/formats/tokenizer.h"

#include <filesystem>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_config.h"
#include "intarsia/formats/tokenizer_impl.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kProgressBytes = 1 << 18;

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

}  // namespace

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
  const auto on_token = [&](std::int32_t id, std::string_view) { ids.push_back(id); };
  impl_->raw_added.cut(
      text,
      [&](std::string_view piece) { impl_->walk(piece, piece.data() == text.data(), *scratch, on_word, on_token); },
      on_token);
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

}  // namespace intarsia::formats
