#include "intarsia/formats/tokenizer_added.h"

#include <algorithm>
#include <utility>

#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats {
namespace {

// The code point that ends at `end` (above 0) and where it begins. The text is valid UTF-8.
std::pair<char32_t, std::size_t> code_point_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return {utf8_part(text, begin).code_point, begin};
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    starts_[static_cast<unsigned char>(content[0])] = true;
    std::size_t node = 0;
    for (const unsigned char byte : content) {
      const auto [child, fresh] = nodes_[node].children.emplace(byte, nodes_.size());
      node = child->second;
      if (fresh) nodes_.emplace_back();
    }
    nodes_[node].token = i;
  }
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, std::size_t at) const {
  for (; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    Found longest;
    std::size_t node = 0;
    for (std::size_t end = at; end < text.size();) {
      const auto child = nodes_[node].children.find(static_cast<unsigned char>(text[end]));
      if (child == nodes_[node].children.end()) break;
      node = child->second;
      ++end;
      if (nodes_[node].token != kNoToken) longest = {&tokens_[nodes_[node].token], at, end};
    }
    if (longest.token != nullptr) return longest;
  }
  return {};
}

bool AddedTokenFinder::stands_alone(std::string_view text, const Found& found) {
  if (!found.token->single_word) return true;
  if (found.begin > 0 && is_word_character(code_point_before(text, found.begin).first)) return false;
  return found.end == text.size() || !is_word_character(utf8_part(text, found.end).code_point);
}

AddedTokenFinder::Found AddedTokenFinder::with_white_space(std::string_view text, Found found, std::size_t done) {
  if (found.token->lstrip) {
    while (found.begin > done) {
      const auto [code_point, begin] = code_point_before(text, found.begin);
      if (!is_white_space(code_point)) break;
      found.begin = begin;
    }
  }
  if (found.token->rstrip) {
    while (found.end < text.size()) {
      const Utf8Part part = utf8_part(text, found.end);
      if (!is_white_space(part.code_point)) break;
      found.end += part.length;
    }
  }
  return found;
}

}  // namespace intarsia::formats
