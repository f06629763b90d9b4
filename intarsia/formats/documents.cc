#include "intarsia/formats/documents.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/documents_json.h"
#include "intarsia/formats/tokenizer_text.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string lower_extension(std::string_view path) {
  std::string extension = fs::path(path).extension().string();
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

bool is_jsonl(const std::string& path) {
  const std::string extension = lower_extension(unpacked_name(path));
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

void refuse_other_kinds(const std::string& path) {
  struct Other {
    const char* extension;
    const char* reason;
  };
  static constexpr std::array<Other, 9> kOthers = {{
      {".xz", "only .gz and .zst are unpacked; unpack it (unxz)"},
      {".bz2", "only .gz and .zst are unpacked; unpack it (bunzip2)"},
      {".zip", "archives are not supported; unpack it"},
      {".parquet", "Parquet files are not read; docs/data.md has a line that converts them to JSONL"},
      {".arrow", "Arrow files are not read; docs/data.md has a line that converts them to JSONL"},
      {".bin", "this is a name of token files, not of documents"},
      {".idx", "this is a name of token files, not of documents"},
      {".npy", "this is a name of arrays, not of documents"},
      {".safetensors", "this is a name of tensors, not of documents"},
  }};
  const std::string extension = lower_extension(unpacked_name(path));
  for (const Other& other : kOthers) {
    INTARSIA_CHECK(kUnsupported, extension != other.extension, path, ": ", other.reason);
  }
}

bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Part part = utf8_part(text, at);
    if (!is_white_space(part.code_point)) return false;
    at += part.length;
  }
  return true;
}

}  // namespace

std::vector<std::string> expand_paths(const std::vector<std::string>& paths) {
  INTARSIA_CHECK(kUsage, !paths.empty(), "no data files given");
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) {
      out.push_back(path);
      continue;
    }
    glob_t found{};
    const int result = ::glob(path.c_str(), GLOB_TILDE, nullptr, &found);
    if (result == 0) out.insert(out.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    const bool is_glob = path.find_first_of("*?[") != std::string::npos;
    INTARSIA_CHECK(kUsage, result == 0, is_glob ? "no file matches " : "no such file: ", printable(path));
  }
  return out;
}

DocumentReader::DocumentReader(std::vector<std::string> paths, DocumentOptions options)
    : paths_(std::move(paths)), options_(options) {
  INTARSIA_CHECK(kUsage, !paths_.empty(), "no data files given");
  for (const std::string& path : paths_) {
    refuse_other_kinds(path);
    const io::Fd fd = io::open_read(path);
    bytes_total_ += static_cast<std::int64_t>(io::file_size(fd, path));
  }
}

std::string DocumentReader::place(std::int64_t line) const { return concat(paths_[at_], ":", line); }

std::int64_t DocumentReader::bytes_done() const {
  return bytes_done_ + (in_ ? static_cast<std::int64_t>(in_->bytes_done()) : 0);
}

void DocumentReader::open_file() {
  in_ = ByteStream::open(paths_[at_]);
  block_.clear();
  block_at_ = 0;
  line_ = 0;
}

bool DocumentReader::next(Document& document) {
  while (at_ < paths_.size()) {
    if (!in_) open_file();
    Step result = Step::kEndOfFile;
    try {
      document = {};
      result = step(document);
      const std::optional<std::size_t> invalid = first_invalid_utf8(document.text);
      INTARSIA_CHECK(kData, !invalid, document.origin, ": the text is not UTF-8 (byte ", invalid.value_or(0),
                     " of the document); convert it, for example with iconv -t UTF-8");
    } catch (const Error& error) {
      // In a JSONL file the next line stands by itself, whatever is wrong with this one.
      if (options_.bad_lines != BadLines::kSkip || error.kind() != ErrorKind::kData || !is_jsonl(paths_[at_])) throw;
      ++num_bad_lines_;
      continue;
    }
    if (result == Step::kEndOfFile) {
      bytes_done_ += static_cast<std::int64_t>(in_->bytes_done());
      in_.reset();
      ++at_;
      continue;
    }
    if (is_blank(document.text)) {
      ++num_skipped_;
      continue;
    }
    ++num_documents_;
    return true;
  }
  INTARSIA_CHECK(kData, num_documents_ > 0, "the data is empty: no document with text in ", paths_.size(), " file(s), ",
                 bytes_total_, " bytes, beginning with ", paths_.front(),
                 num_bad_lines_ > 0 ? concat("; ", num_bad_lines_, " malformed lines were skipped") : "");
  return false;
}

DocumentReader::Step DocumentReader::step(Document& document) {
  if (is_jsonl(paths_[at_])) return next_line(document);
  return options_.split == TextSplit::kBlankLines ? next_paragraph(document) : next_file(document);
}

DocumentReader::Step DocumentReader::next_file(Document& document) {
  if (line_++ > 0) return Step::kEndOfFile;
  document.origin = paths_[at_];
  while (fill()) {
    document.text += block_;
    block_at_ = block_.size();
    INTARSIA_CHECK(kData, document.text.size() <= kMaxDocumentBytes, document.origin, ": a document of more than ",
                   format_bytes(kMaxDocumentBytes));
  }
  if (document.text.starts_with(kByteOrderMark)) document.text.erase(0, kByteOrderMark.size());
  return Step::kDocument;
}

// Reads the next block when the last is used up; false at the end of the file.
bool DocumentReader::fill() {
  if (block_at_ < block_.size()) return true;
  block_at_ = 0;
  return in_->read(block_);
}

// The next line without its LF; a byte-order mark before the first is dropped.
bool DocumentReader::read_line(std::string& line, std::uint64_t limit) {
  line.clear();
  if (!fill()) return false;
  ++line_;
  bool ended = false;
  std::uint64_t length = 0;  // also of a line that is too long, which is read to its end: the next one stands by itself
  while (!ended && fill()) {
    const std::size_t end = block_.find('\n', block_at_);
    ended = end != std::string::npos;
    const std::size_t used = (ended ? end + 1 : block_.size()) - block_at_;
    length += ended ? used - 1 : used;
    if (length <= limit) line.append(block_, block_at_, ended ? used - 1 : used);
    block_at_ += used;
  }
  INTARSIA_CHECK(kData, length <= limit, place(line_), ": a line of ", format_bytes(static_cast<std::int64_t>(length)),
                 ", allowed are ", format_bytes(static_cast<std::int64_t>(limit)),
                 "; divide it, or put a text of this length into a file of its own");
  if (line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return true;
}

DocumentReader::Step DocumentReader::next_line(Document& document) {
  std::string line;
  do {
    if (!read_line(line, kMaxLineBytes)) return Step::kEndOfFile;
    if (line.ends_with('\r')) line.pop_back();
  } while (line.find_first_not_of(" \t") == std::string::npos);
  document.origin = place(line_);
  read_json_line(line, options_, document);
  return Step::kDocument;
}

DocumentReader::Step DocumentReader::next_paragraph(Document& document) {
  document.text.clear();
  std::string line;
  while (read_line(line, kMaxDocumentBytes)) {
    const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
    if (blank && !document.text.empty()) return Step::kDocument;
    if (blank) continue;
    if (document.text.empty()) document.origin = place(line_);
    document.text += line;
    document.text += '\n';
    INTARSIA_CHECK(kData, document.text.size() <= kMaxDocumentBytes, document.origin, ": a document of more than ",
                   format_bytes(kMaxDocumentBytes));
  }
  return document.text.empty() ? Step::kEndOfFile : Step::kDocument;
}

}  // namespace intarsia::formats
