#include "intarsia/data/token_cache.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"
#include "intarsia/formats/documents.h"
#include "intarsia/formats/token_file.h"
#include "intarsia/formats/tokenizer.h"
#include "intarsia/io/file.h"

namespace intarsia::data {
namespace {

namespace fs = std::filesystem;

// Raise it when tokenizing or packing changes what a cache holds.
constexpr std::uint64_t kCacheVersion = 1;

std::uint64_t mix(std::uint64_t hash, std::string_view bytes) { return philox_key(hash, bytes); }
std::uint64_t mix(std::uint64_t hash, std::int64_t number) { return mix(hash, std::to_string(number)); }

// What a tokenizer makes of a text follows from its file; one that was made from data at hand has only its tokens.
std::uint64_t mix(std::uint64_t hash, const formats::Tokenizer& tokenizer) {
  hash = mix(hash, tokenizer.end_of_text().value_or(-1));
  std::error_code ignored;
  if (fs::is_regular_file(tokenizer.name(), ignored)) {
    return mix(hash, io::read_text_file(tokenizer.name(), formats::kMaxTokenizerFileBytes));
  }
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    hash = mix(mix(hash, tokenizer.token_bytes(id)), tokenizer.is_special(id) ? 1 : 0);
  }
  return hash;
}

std::string hex(std::uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  std::string text(digits.data(), end);
  return std::string(16 - text.size(), '0') + text;
}

}  // namespace

std::int64_t tokenize_documents(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                                const std::function<void(std::span<const std::int32_t>)>& out,
                                const TokenizeProgress& progress) {
  formats::DocumentReader reader(paths);
  formats::Document document;
  while (reader.next(document)) {
    // The reader has the document's bytes behind it; of a long one the encoder tells how far it is.
    const std::int64_t before = reader.bytes_done() - static_cast<std::int64_t>(document.text.size());
    std::int64_t encoded = 0;
    const auto report = [&](std::size_t bytes) {
      encoded += static_cast<std::int64_t>(bytes);
      progress(std::max<std::int64_t>(0, before) + encoded, reader.bytes_total());
    };
    try {
      out(tokenizer.encode_document(document.text,
                                    progress ? formats::Tokenizer::Progress(report) : formats::Tokenizer::Progress()));
    } catch (const Error& error) {
      fail(error.kind(), document.origin, ": ", error.what());
    }
  }
  if (progress) progress(reader.bytes_total(), reader.bytes_total());
  return reader.num_documents();
}

std::string token_cache_path(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                             const std::string& cache_dir) {
  INTARSIA_INVARIANT(!paths.empty(), "no files to tokenize");
  std::uint64_t hash = mix(kCacheVersion, tokenizer);
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    const auto size = error ? 0 : fs::file_size(absolute, error);
    const auto time = error ? fs::file_time_type() : fs::last_write_time(absolute, error);
    if (error) io::fail_io("look at", path, error.value());
    hash = mix(hash, absolute.lexically_normal().string());
    hash = mix(mix(hash, static_cast<std::int64_t>(size)), time.time_since_epoch().count());
  }
  return (fs::path(cache_dir) / (fs::path(paths.front()).stem().string() + "-" + hex(hash) + ".bin")).string();
}

std::string tokenize_to_cache(const std::vector<std::string>& paths, const formats::Tokenizer& tokenizer,
                              const std::string& cache_dir, const TokenizeProgress& progress) {
  const std::string path = token_cache_path(paths, tokenizer, cache_dir);
  // Without its description a token file left by a crash could not be told from one of another type.
  std::error_code error;
  if (fs::exists(path, error) && fs::exists(formats::token_info_path(path), error)) return path;
  fs::create_directories(cache_dir, error);
  if (error) io::fail_io("create folder", cache_dir, error.value());
  formats::TokenFileInfo info;
  info.dtype = formats::token_dtype(tokenizer.vocab_size());
  info.vocab_size = tokenizer.vocab_size();
  info.tokenizer = tokenizer.name();
  info.end_of_text = tokenizer.end_of_text();
  formats::TokenFileWriter writer(path, info);
  tokenize_documents(
      paths, tokenizer, [&](std::span<const std::int32_t> ids) { writer.append(ids); }, progress);
  writer.commit();
  return path;
}

}  // namespace intarsia::data
