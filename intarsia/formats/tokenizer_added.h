// Finds added tokens in text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "intarsia/formats/tokenizer_spec.h"

namespace intarsia::formats {

// Looks for a set of added tokens at once: at each place the longest one that stands there.
// Threads: const members may be called at once.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // Looks for the contents as they stand; the tokens' `normalized` does not matter here. No content is empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Calls text(piece) for what lies between tokens and token(id, piece) for each token found with what it takes, in
  // order. Pieces are not empty.
  template <typename OnText, typename OnToken>
  void cut(std::string_view text, OnText&& on_text, OnToken&& on_token) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const Found found = find(text, at);
      if (found.token == nullptr) break;
      at = found.end;
      if (!stands_alone(text, found)) continue;
      const Found taken = with_white_space(text, found, done);
      if (done < taken.begin) on_text(text.substr(done, taken.begin - done));
      on_token(taken.token->id, text.substr(taken.begin, taken.end - taken.begin));
      done = taken.end;
      at = std::max(at, done);
    }
    if (done < text.size()) on_text(text.substr(done));
  }

 private:
  struct Found {
    const AddedToken* token = nullptr;
    std::size_t begin = 0, end = 0;
  };
  struct Node {
    std::map<unsigned char, std::size_t> children;
    std::size_t token = kNoToken;
  };
  static constexpr std::size_t kNoToken = static_cast<std::size_t>(-1);

  // The first token at or after `at`.
  Found find(std::string_view text, std::size_t at) const;
  static bool stands_alone(std::string_view text, const Found& found);
  static Found with_white_space(std::string_view text, Found found, std::size_t done);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // a trie; node 0 is the root
  std::array<bool, 256> starts_{};
};

}  // namespace intarsia::formats
