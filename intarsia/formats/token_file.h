// Flat files of token ids. Ours: NAME.bin, little-endian u16 or u32 without a header; NAME.bin.documents, where they
// end and what of them is trained on (document_map.h; may be missing); and NAME.bin.json, which says what the tokens
// are:
//   {"format": "intarsia-tokens", "version": 1, "dtype": "u16", "tokens": N, "vocab_size": V,
//    "tokenizer": "...", "end_of_text": id or null, "documents": D, "bad_lines": B}
// (the last two may be missing).
// Megatron's: NAME.bin with NAME.idx (indexed_dataset.h). A NAME.bin with neither is taken as u16, as nanoGPT writes
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/formats/document_map.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {

struct TokenFileInfo {
  DType dtype = DType::kU16;  // ours: kU16 or kU32; Megatron's: any integer of up to 64 bits
  std::int64_t num_tokens = 0;
  std::int64_t vocab_size = 0;  // of the tokenizer; 0: not known
  std::string tokenizer = {};   // what made the file; empty: not known
  std::optional<std::int32_t> end_of_text = {};
  std::int64_t num_documents = 0;  // 0: not known
  std::int64_t num_bad_lines = 0;  // lines of the documents' files that were skipped
};

// The smaller type that holds every id of a vocabulary.
DType token_dtype(std::int64_t vocab_size);

// Where the description of a token file stands: "NAME.bin.json".
std::string token_info_path(const std::string& path);

// A token file to read, mapped. Threads: const members may be called at once. Memory: none beyond the mapping.
class TokenFile {
 public:
  // `vocab_size`: rows of the model's embedding; ids are held against it as they are read. 0: against the description's
  // vocabulary, if there is one.
  // `path` is NAME.bin or, of Megatron's, NAME.idx.
  // Errors: kIo; kFormat when size and description disagree or a u16 file has an odd size; kData for a file without
  // tokens; kConfig when the description's vocabulary is larger than `vocab_size`.
  static TokenFile open(const std::string& path, std::int64_t vocab_size = 0);

  const std::string& path() const { return map_.path(); }
  const TokenFileInfo& info() const { return info_; }
  std::int64_t size() const { return info_.num_tokens; }
  // Nothing where documents are known by their end-of-text tokens only.
  const std::optional<DocumentMap>& documents() const { return documents_; }
  // The tokens as they stand in the file, unchecked; valid as long as this object.
  std::span<const std::byte> bytes() const { return map_.bytes(); }

  // Tokens [begin, begin + out.size()). Errors: kData with file, place and id for an id outside the vocabulary; kUsage
  // for a range outside the file.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  TokenFile(io::MappedFile map, TokenFileInfo info, std::optional<DocumentMap> documents, std::int64_t limit)
      : map_(std::move(map)), info_(std::move(info)), documents_(std::move(documents)), limit_(limit) {}
  template <typename Stored, typename Out>
  void read_as(std::int64_t begin, std::span<Out> out) const;
  template <typename Out>
  void read_any(std::int64_t begin, std::span<Out> out) const;

  io::MappedFile map_;
  TokenFileInfo info_;
  std::optional<DocumentMap> documents_;
  std::int64_t limit_;  // ids are below
};

// Writes a token file and its description. Nothing stands at `path` before commit(); a writer that is destroyed without
// it leaves nothing behind. Memory: a buffer of 1 MiB.
class TokenFileWriter {
 public:
  // `info.num_tokens` is counted by the writer. An older temporary of the same name is replaced. Errors: kIo.
  TokenFileWriter(std::string path, TokenFileInfo info);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  // Adds tokens of documents that end with their end-of-text tokens.
  // Errors: kIo; kData for an id below 0 or at or above info.vocab_size (0: above what the type holds).
  void append(std::span<const std::int32_t> ids);
  // Adds a whole document; `marks`: which tokens are trained on, empty: all. As soon as one document has marks, the
  // file gets a map of its documents; then every document must be added so. Memory: 8 bytes a document, 16 a run of
  // trained tokens. Errors: as append's.
  void append_document(std::span<const std::int32_t> ids, const std::vector<bool>& marks);
  // What the description says about the documents' files.
  void set_counts(std::int64_t num_documents, std::int64_t num_bad_lines);
  // Writes what is left, syncs and moves the file, its description and its map into place. Errors: kIo.
  void commit();

  const TokenFileInfo& info() const { return info_; }

 private:
  void flush();

  std::string path_, temporary_;
  TokenFileInfo info_;
  io::Fd fd_;
  std::vector<std::byte> buffer_;
  DocumentMap documents_;
  bool committed_ = false;
};

}  // namespace intarsia::formats
