#include "intarsia/formats/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/indexed_dataset.h"
#include "intarsia/formats/json.h"

namespace intarsia::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr const char* kFormatName = "intarsia-tokens";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kBufferBytes = 1 << 20;

std::string dtype_name(DType dtype) { return dtype == DType::kU32 ? "u32" : "u16"; }

const JsonValue& member(const JsonValue& root, const char* key, const std::string& path) {
  const JsonMember* found = root.find(key);
  INTARSIA_CHECK(kFormat, found != nullptr, path, ": key \"", key,
                 "\" is missing; this is not a description of tokens");
  return found->value;
}

std::int64_t integer(const JsonValue& root, const char* key, const std::string& path, std::int64_t low) {
  const JsonValue& value = member(root, key, path);
  const std::optional<std::int64_t> number = value.as_integer();
  INTARSIA_CHECK(kFormat, number && *number >= low, path, ": \"", key, "\" is ", value.show(),
                 ", expected an integer of at least ", low);
  return *number;
}

TokenFileInfo read_info(const std::string& path) {
  const JsonValue root = read_json_file(path);
  const JsonValue& format = member(root, "format", path);
  INTARSIA_CHECK(kFormat, format.text == kFormatName, path, ": \"format\" is ", format.show(), ", expected \"",
                 kFormatName, "\"");
  const std::int64_t version = integer(root, "version", path, 1);
  INTARSIA_CHECK(kUnsupported, version == kVersion, path, ": version ", version, ", this program reads ", kVersion);
  TokenFileInfo info;
  const JsonValue& dtype = member(root, "dtype", path);
  INTARSIA_CHECK(kFormat, dtype.text == "u16" || dtype.text == "u32", path, ": \"dtype\" is ", dtype.show(),
                 ", allowed are \"u16\" and \"u32\"");
  info.dtype = dtype.text == "u32" ? DType::kU32 : DType::kU16;
  info.num_tokens = integer(root, "tokens", path, 0);
  info.vocab_size = integer(root, "vocab_size", path, 0);
  INTARSIA_CHECK(kFormat, info.vocab_size <= std::numeric_limits<std::int32_t>::max(), path, ": \"vocab_size\" is ",
                 info.vocab_size, ", allowed is up to ", std::numeric_limits<std::int32_t>::max());
  if (root.find("documents") != nullptr) info.num_documents = integer(root, "documents", path, 0);
  if (root.find("bad_lines") != nullptr) info.num_bad_lines = integer(root, "bad_lines", path, 0);
  if (const JsonMember* tokenizer = root.find("tokenizer")) info.tokenizer = tokenizer->value.text;
  const JsonMember* end = root.find("end_of_text");
  if (end != nullptr && end->value.kind != JsonValue::Kind::kNull) {
    const std::int64_t id = integer(root, "end_of_text", path, 0);
    INTARSIA_CHECK(kFormat, id < info.vocab_size, path, ": \"end_of_text\" is ", id, ", but \"vocab_size\" is ",
                   info.vocab_size);
    info.end_of_text = static_cast<std::int32_t>(id);
  }
  return info;
}

std::string info_text(const TokenFileInfo& info) {
  return concat("{\"format\": \"", kFormatName, "\", \"version\": ", kVersion, ", \"dtype\": \"",
                dtype_name(info.dtype), "\", \"tokens\": ", info.num_tokens, ", \"vocab_size\": ", info.vocab_size,
                ", \"tokenizer\": ", json_quote(info.tokenizer),
                ", \"end_of_text\": ", info.end_of_text ? std::to_string(*info.end_of_text) : "null",
                ", \"documents\": ", info.num_documents, ", \"bad_lines\": ", info.num_bad_lines, "}\n");
}

}  // namespace

DType token_dtype(std::int64_t vocab_size) { return vocab_size <= 65536 ? DType::kU16 : DType::kU32; }

std::string token_info_path(const std::string& path) { return path + ".json"; }

TokenFile TokenFile::open(const std::string& given, std::int64_t vocab_size) {
  const bool by_index = given.ends_with(".idx");
  const std::string path = by_index ? given.substr(0, given.size() - 4) + ".bin" : given;
  std::error_code ignored;
  INTARSIA_CHECK(kIo, !by_index || std::filesystem::exists(path, ignored), given, ": there is no ", path,
                 " with its tokens");
  io::MappedFile map = io::MappedFile::open(path);
  const auto bytes = static_cast<std::int64_t>(map.size());
  const std::string info_path = token_info_path(path);
  const std::string index_path = path.ends_with(".bin") ? path.substr(0, path.size() - 4) + ".idx" : "";
  TokenFileInfo info;
  std::optional<DocumentMap> documents;
  if (!by_index && std::filesystem::exists(info_path, ignored)) {
    info = read_info(info_path);
    const auto width = static_cast<std::int64_t>(dtype_size(info.dtype));
    INTARSIA_CHECK(kFormat, bytes % width == 0 && bytes / width == info.num_tokens, path, ": ", bytes, " bytes, but ",
                   info_path, " says ", info.num_tokens, " tokens of ", width,
                   " bytes; the two do not belong together or the file is cut");
    const std::string map_path = document_map_path(path);
    if (std::filesystem::exists(map_path, ignored)) documents = read_document_map(map_path, info.num_tokens);
  } else if (!index_path.empty() && std::filesystem::exists(index_path, ignored)) {
    IndexedDataset dataset = read_indexed_dataset(index_path, map.size());
    info.dtype = dataset.dtype;
    info.num_tokens = dataset.num_tokens;
    documents = DocumentMap{std::move(dataset.document_ends), std::nullopt};
  } else {
    INTARSIA_CHECK(kFormat, bytes % 2 == 0, path, ": ", bytes,
                   " bytes, an odd number, cannot be u16 tokens; there is no ", info_path, " to say otherwise");
    info.num_tokens = bytes / 2;
  }
  INTARSIA_CHECK(kData, info.num_tokens > 0, path, ": no tokens in this file");
  INTARSIA_CHECK(kConfig, vocab_size == 0 || info.vocab_size <= vocab_size, path, ": made with a vocabulary of ",
                 info.vocab_size, " tokens (", printable(info.tokenizer), "), but the model has ", vocab_size,
                 "; tokenize with the model's tokenizer");
  std::int64_t limit = vocab_size > 0 ? vocab_size : info.vocab_size;
  if (limit == 0) limit = info.dtype == DType::kI64 ? INT64_MAX : std::int64_t{1} << 31;
  return TokenFile(std::move(map), std::move(info), std::move(documents), limit);
}

template <typename Stored, typename Out>
void TokenFile::read_as(std::int64_t begin, std::span<Out> out) const {
  const std::span<const std::byte> bytes = map_.view(static_cast<std::uint64_t>(begin) * sizeof(Stored),
                                                     static_cast<std::uint64_t>(out.size()) * sizeof(Stored));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored id;
    std::memcpy(&id, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    const auto value = static_cast<std::int64_t>(id);
    INTARSIA_CHECK(kData, value >= 0 && value < limit_ && value <= std::numeric_limits<Out>::max(), path(), ": token ",
                   begin + static_cast<std::int64_t>(i), " is ", value, ", but the vocabulary has ", limit_,
                   " tokens; tokenize with the model's tokenizer");
    out[i] = static_cast<Out>(id);
  }
}

template <typename Out>
void TokenFile::read_any(std::int64_t begin, std::span<Out> out) const {
  INTARSIA_CHECK(kUsage, begin >= 0 && begin <= size() && static_cast<std::int64_t>(out.size()) <= size() - begin,
                 path(), ": tokens ", begin, " to ", begin + static_cast<std::int64_t>(out.size()),
                 " asked for, the file has ", size());
  switch (info_.dtype) {
    case DType::kU8:
      return read_as<std::uint8_t>(begin, out);
    case DType::kI8:
      return read_as<std::int8_t>(begin, out);
    case DType::kI16:
      return read_as<std::int16_t>(begin, out);
    case DType::kI32:
      return read_as<std::int32_t>(begin, out);
    case DType::kI64:
      return read_as<std::int64_t>(begin, out);
    case DType::kU32:
      return read_as<std::uint32_t>(begin, out);
    default:
      return read_as<std::uint16_t>(begin, out);
  }
}

void TokenFile::read(std::int64_t begin, std::span<std::int64_t> out) const { read_any(begin, out); }
void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const { read_any(begin, out); }

TokenFileWriter::TokenFileWriter(std::string path, TokenFileInfo info)
    : path_(std::move(path)), temporary_(path_ + ".part"), info_(std::move(info)) {
  INTARSIA_INVARIANT(info_.dtype == DType::kU16 || info_.dtype == DType::kU32, "tokens are u16 or u32");
  info_.num_tokens = 0;
  // What a killed run left; removing the name never follows a link.
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
  fd_ = io::create_exclusive(temporary_);
  buffer_.reserve(kBufferBytes);
}

TokenFileWriter::~TokenFileWriter() {
  if (committed_ || !fd_.is_open()) return;
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void TokenFileWriter::append(std::span<const std::int32_t> ids) {
  const std::int64_t holds = info_.dtype == DType::kU16 ? 65536 : std::int64_t{1} << 31;
  const std::int64_t limit = info_.vocab_size > 0 ? std::min(info_.vocab_size, holds) : holds;
  for (const std::int32_t id : ids) {
    INTARSIA_CHECK(kData, id >= 0 && id < limit, path_, ": token ", info_.num_tokens, " is ", id, ", allowed is 0 to ",
                   limit - 1);
    const std::size_t width = dtype_size(info_.dtype);
    std::byte bytes[4];
    std::memcpy(bytes, &id, sizeof(id));
    buffer_.insert(buffer_.end(), bytes, bytes + width);
    ++info_.num_tokens;
    if (buffer_.size() >= kBufferBytes) flush();
  }
}

void TokenFileWriter::append_document(std::span<const std::int32_t> ids, const std::vector<bool>& marks) {
  INTARSIA_INVARIANT(marks.empty() || marks.size() == ids.size(), marks.size(), " marks of ", ids.size(), " tokens");
  append(ids);
  documents_.add(static_cast<std::int64_t>(ids.size()), marks);
}

void TokenFileWriter::set_counts(std::int64_t num_documents, std::int64_t num_bad_lines) {
  info_.num_documents = num_documents;
  info_.num_bad_lines = num_bad_lines;
}

void TokenFileWriter::flush() {
  io::write_all(fd_, temporary_, buffer_);
  buffer_.clear();
}

void TokenFileWriter::commit() {
  INTARSIA_INVARIANT(!committed_, "commit() twice");
  flush();
  io::fsync_file(fd_, temporary_);
  const std::string map_path = document_map_path(path_);
  if (!documents_.ends.empty()) {
    INTARSIA_INVARIANT(documents_.num_tokens() == info_.num_tokens, "a map of documents without all of them");
    write_document_map(map_path, documents_);
  } else {
    std::error_code ignored;
    std::filesystem::remove(map_path, ignored);  // of a file that had this name before
  }
  // The description first: a crash between the two leaves an old file that the new description does not fit, an error,
  // where the other order could leave u32 tokens without one, read as u16.
  io::write_file_atomic(token_info_path(path_), info_text(info_));
  io::rename_path(temporary_, path_);
  committed_ = true;
  io::fsync_directory(io::parent_directory(path_));
}

}  // namespace intarsia::formats
