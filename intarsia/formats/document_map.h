// Which tokens of a token file belong together, and which are trained on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace intarsia::formats {

// Tokens [begin, end) of a file.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const TokenRange&) const = default;
};

// Memory: 8 bytes a document and 16 a run of trained tokens.
struct DocumentMap {
  std::vector<std::int64_t> ends;  // of each document; they do not descend, the last is the number of tokens
  // Runs of tokens that are trained on, ascending and apart from each other; nothing: every token.
  std::optional<std::vector<TokenRange>> trained;

  std::int64_t num_tokens() const { return ends.empty() ? 0 : ends.back(); }

  // Adds a document of `count` tokens; `marks`: whether each is trained on, or empty for all.
  void add(std::int64_t count, const std::vector<bool>& marks);
};

// Where the map of a token file stands: "NAME.bin.documents", a safetensors file with `document_ends` I64 [D] and,
// unless every token is trained on, `trained` I64 [R, 2].
std::string document_map_path(const std::string& token_path);

// Errors: kIo; kFormat for a file that is no map of `num_tokens` tokens.
DocumentMap read_document_map(const std::string& path, std::int64_t num_tokens);
// Errors: kIo.
void write_document_map(const std::string& path, const DocumentMap& map);

}  // namespace intarsia::formats
