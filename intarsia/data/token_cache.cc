#include "intarsia/data/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"
#include "intarsia/formats/documents.h"
#include "intarsia/formats/token_file.h"
#include "intarsia/formats/tokenizer.h"
#include "intarsia/formats/training_ids.h"
#include "intarsia/io/file.h"

namespace intarsia::data {
namespace {

namespace fs = std::filesystem;

// Raise it when tokenizing or packing changes what a cache holds.
constexpr std::uint64_t kCacheVersion = 2;

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

// Held while a cache is made: ranks that a launcher started each want it, and one makes it. Ends with the process. File
// systems without locks give none.
io::Fd lock_folder(const std::string& folder) {
  io::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) io::fail_io("open folder", folder, errno);
  while (::flock(fd.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return fd;
}

}  // namespace

DocumentCounts tokenize_documents(const std::vector<std::string>& paths, const DataOptions& options,
                                  const std::function<void(const formats::MarkedIds&)>& out,
                                  const TokenizeProgress& progress) {
  formats::DocumentReader reader(paths,
                                 {.chat = options.chat, .train_on = options.train_on, .bad_lines = options.bad_lines});
  formats::Document document;
  while (reader.next(document)) {
    // The reader has the document's bytes behind it; of a long one the encoder tells how far it is.
    const std::int64_t before = reader.bytes_done() - static_cast<std::int64_t>(document.text.size());
    std::int64_t encoded = 0;
    const auto report = [&](std::size_t bytes) {
      encoded += static_cast<std::int64_t>(bytes);
      progress(std::max<std::int64_t>(0, before) + encoded, reader.bytes_total());
    };
    out(formats::training_ids(*options.tokenizer, document,
                              progress ? formats::Tokenizer::Progress(report) : formats::Tokenizer::Progress()));
  }
  if (progress) progress(reader.bytes_total(), reader.bytes_total());
  return {reader.num_documents(), reader.num_bad_lines()};
}

std::string token_cache_path(const std::vector<std::string>& paths, const DataOptions& options) {
  INTARSIA_INVARIANT(!paths.empty(), "no files to tokenize");
  std::uint64_t hash = mix(kCacheVersion, *options.tokenizer);
  if (options.chat != nullptr) hash = mix(hash, options.chat->identity());
  hash = mix(hash, options.train_on == formats::TrainOn::kAll ? 1 : 0);
  hash = mix(hash, options.bad_lines == formats::BadLines::kSkip ? 1 : 0);
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    const auto size = error ? 0 : fs::file_size(absolute, error);
    const auto time = error ? fs::file_time_type() : fs::last_write_time(absolute, error);
    if (error) io::fail_io("look at", path, error.value());
    hash = mix(hash, absolute.lexically_normal().string());
    hash = mix(mix(hash, static_cast<std::int64_t>(size)), time.time_since_epoch().count());
  }
  const std::string name = fs::path(paths.front()).stem().string() + "-" + hex(hash) + ".bin";
  return (fs::path(options.cache_dir) / name).string();
}

std::string tokenize_to_cache(const std::vector<std::string>& paths, const DataOptions& options,
                              const TokenizeProgress& progress) {
  const std::string path = token_cache_path(paths, options);
  // Without its description a token file left by a crash could not be told from one of another type.
  const auto is_there = [&path] {
    std::error_code ignored;
    return fs::exists(path, ignored) && fs::exists(formats::token_info_path(path), ignored);
  };
  if (is_there()) return path;
  std::error_code error;
  fs::create_directories(options.cache_dir, error);
  if (error) io::fail_io("create folder", options.cache_dir, error.value());
  const io::Fd lock = lock_folder(options.cache_dir);
  if (is_there()) return path;  // another process was first
  const formats::Tokenizer& tokenizer = *options.tokenizer;
  formats::TokenFileInfo info;
  info.dtype = formats::token_dtype(tokenizer.vocab_size());
  info.vocab_size = tokenizer.vocab_size();
  info.tokenizer = tokenizer.name();
  info.end_of_text = tokenizer.end_of_text();
  formats::TokenFileWriter writer(path, info);
  const DocumentCounts counts = tokenize_documents(
      paths, options, [&](const formats::MarkedIds& document) { writer.append_document(document.ids, document.marks); },
      progress);
  writer.set_counts(counts.documents, counts.bad_lines);
  writer.commit();
  return path;
}

}  // namespace intarsia::data
