// Streams the documents of text and JSONL files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/io/file.h"

namespace intarsia::formats {

// One document: UTF-8, not empty.
struct Document {
  std::string text;
  std::string origin;  // "FILE" or "FILE:LINE" (of its first line), for messages
};

// What one document of a plain text file is.
enum class TextSplit { kFile, kBlankLines };

struct DocumentOptions {
  TextSplit split = TextSplit::kFile;
};

// Limits on one document, which is held in memory.
inline constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{1} << 30;

// Paths with *, ?, [..] and ~ expanded, in the order given, those of one glob sorted. A path that exists is itself,
// whatever characters it has. Errors: kUsage for no paths and for one that matches nothing.
std::vector<std::string> expand_paths(const std::vector<std::string>& paths);

// Reads files one after another:
// - .jsonl, .ndjson, .json: one JSON object a line with a string "text"; empty lines are skipped.
// - every other name: plain text; one document a file, or one a paragraph with TextSplit::kBlankLines.
// A byte-order mark at the beginning and CR before the end of a JSONL line do not count. Documents without a character
// other than white space are skipped and counted.
// Memory: one document. Threads: one at a time.
class DocumentReader {
 public:
  // `paths` are files; all are looked at at once, so that a missing one does not show after an hour.
  // Errors: kIo for what cannot be read; kUnsupported, by name, for compressed files and for files that hold no text.
  explicit DocumentReader(std::vector<std::string> paths, DocumentOptions options = {});

  // Fills `document` with the next one; false after the last.
  // Errors, each with file and line: kData for text that is not UTF-8, a line that is not an object with "text", a
  // document above the limit, and, at the end, files without any document; kUnsupported for "prompt" and "messages".
  bool next(Document& document);

  std::int64_t num_documents() const { return num_documents_; }  // so far
  std::int64_t num_skipped() const { return num_skipped_; }      // empty ones so far
  std::int64_t bytes_done() const { return bytes_done_; }        // of the files
  std::int64_t bytes_total() const { return bytes_total_; }

 private:
  enum class Step { kDocument, kEndOfFile };

  void open_file();
  Step step(Document& document);
  Step next_file(Document& document);
  Step next_line(Document& document);
  Step next_paragraph(Document& document);
  bool read_line(std::string& line);
  bool fill();
  std::string place(std::int64_t line) const;

  std::vector<std::string> paths_;
  DocumentOptions options_;
  std::size_t at_ = 0;  // the file being read
  io::Fd in_;
  std::string block_;          // bytes of the file read ahead
  std::size_t block_at_ = 0;   // the first not used
  std::uint64_t file_at_ = 0;  // where the next block begins
  std::uint64_t file_size_ = 0;
  std::int64_t line_ = 0;
  std::int64_t num_documents_ = 0, num_skipped_ = 0, bytes_done_ = 0, bytes_total_ = 0;
};

}  // namespace intarsia::formats
