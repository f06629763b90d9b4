// Streams the documents of text and JSONL files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/formats/byte_stream.h"
#include "intarsia/formats/chat_format.h"

namespace intarsia::formats {

// What a line of a JSONL file, or a text, was.
enum class DocumentKind {
  kText,        // all of it is trained on
  kCompletion,  // a prompt and its completion, one after another
  kChat,        // a conversation in the form of the chat template, which has the special tokens already
};

// One document: UTF-8, not empty.
struct Document {
  std::string text;
  std::string origin;  // "FILE" or "FILE:LINE" (of its first line), for messages
  DocumentKind kind = DocumentKind::kText;
  std::vector<TextSpan> trained{};  // in order; of kText nothing: all of it
};

// What one document of a plain text file is.
enum class TextSplit { kFile, kBlankLines };

// What happens to a line of a JSONL file that is no document: malformed, without the fields, or refused by the chat
// template.
enum class BadLines { kError, kSkip };

struct DocumentOptions {
  TextSplit split = TextSplit::kFile;
  const ChatFormat* chat = nullptr;  // for lines with "messages"; used as long as the reader lives
  TrainOn train_on = TrainOn::kAssistant;
  BadLines bad_lines = BadLines::kError;
};

// Limits on one document, which is held in memory; a conversation is held several times.
inline constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxLineBytes = std::uint64_t{64} << 20;  // of JSONL, as it stands in the file
inline constexpr std::uint64_t kMaxChatBytes = std::uint64_t{32} << 20;

// Paths with *, ?, [..] and ~ expanded, in the order given, those of one glob sorted. A path that exists is itself,
// whatever characters it has. Errors: kUsage for no paths and for one that matches nothing.
std::vector<std::string> expand_paths(const std::vector<std::string>& paths);

// Reads files one after another; of a name that ends in .gz or .zst what is packed inside:
// - .jsonl, .ndjson, .json: one JSON object a line with a string "text", strings "prompt" and "completion", or a list
//   "messages" (and perhaps "tools"); empty lines are skipped.
// - every other name: plain text; one document a file, or one a paragraph with TextSplit::kBlankLines.
// A byte-order mark at the beginning and CR before the end of a JSONL line do not count. Documents without a character
// other than white space are skipped and counted.
// Memory: one document. Threads: one at a time.
class DocumentReader {
 public:
  // `paths` are files; all are looked at at once, so that a missing one does not show after an hour.
  // Errors: kIo for what cannot be read; kUnsupported, by name, for files that hold no text and for other packings.
  explicit DocumentReader(std::vector<std::string> paths, DocumentOptions options = {});

  // Fills `document` with the next one; false after the last.
  // Errors, each with file and line: kData for text that is not UTF-8, a line that is no document, a document above the
  // limit, and, at the end, files without any document; kConfig for "messages" without a chat template.
  bool next(Document& document);

  std::int64_t num_documents() const { return num_documents_; }  // so far
  std::int64_t num_skipped() const { return num_skipped_; }      // empty ones so far
  std::int64_t num_bad_lines() const { return num_bad_lines_; }  // skipped ones so far
  std::int64_t bytes_done() const;                               // of the files, packed as they are
  std::int64_t bytes_total() const { return bytes_total_; }

 private:
  enum class Step { kDocument, kEndOfFile };

  void open_file();
  Step step(Document& document);
  Step next_file(Document& document);
  Step next_line(Document& document);
  Step next_paragraph(Document& document);
  bool read_line(std::string& line, std::uint64_t limit);
  bool fill();
  std::string place(std::int64_t line) const;

  std::vector<std::string> paths_;
  DocumentOptions options_;
  std::size_t at_ = 0;  // the file being read
  std::unique_ptr<ByteStream> in_;
  std::string block_;         // bytes of the file read ahead
  std::size_t block_at_ = 0;  // the first not used
  std::int64_t line_ = 0;
  std::int64_t num_documents_ = 0, num_skipped_ = 0, num_bad_lines_ = 0, bytes_done_ = 0, bytes_total_ = 0;
};

}  // namespace intarsia::formats
