#include "intarsia/formats/chat_template/text_functions.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats::chat {
namespace {

std::string_view first_of(std::string_view text) { return text.substr(0, utf8_part(text, 0).length); }

std::string_view last_of(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

// str.isspace(): White_Space and the four separators of ASCII.
bool is_python_space(std::string_view character) {
  const char32_t c = utf8_part(character, 0).code_point;
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

template <typename Change>
std::string each(std::string_view text, const Change& change) {
  std::string out;
  char32_t before = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Part part = utf8_part(text, at);
    append_utf8(out, static_cast<char32_t>(change(static_cast<utf8proc_int32_t>(part.code_point), before, at == 0)));
    before = part.code_point;
    at += part.length;
  }
  return out;
}

}  // namespace

std::string strip(std::string_view text, const std::optional<std::string>& characters, Side side) {
  const auto goes = [&](std::string_view c) {
    return characters ? characters->find(c) != characters->npos : is_python_space(c);
  };
  while (side != Side::kRight && !text.empty() && goes(first_of(text))) text.remove_prefix(first_of(text).size());
  while (side != Side::kLeft && !text.empty() && goes(last_of(text))) text.remove_suffix(last_of(text).size());
  return std::string(text);
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  INTARSIA_CHECK(kData, !from.empty(), "replace of an empty text");
  constexpr std::size_t kLongest = std::size_t{1} << 28;
  std::string out;
  std::size_t at = 0;
  for (; count != 0; --count) {
    const std::size_t found = text.find(from, at);
    if (found == text.npos) break;
    out.append(text, at, found - at).append(to);
    INTARSIA_CHECK(kData, out.size() < kLongest, "replace makes more than 256 MiB of text");
    at = found + from.size();
  }
  return out.append(text, at);
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator, std::int64_t most,
                               bool from_right) {
  std::vector<std::string> out;
  if (!separator) {
    INTARSIA_CHECK(kUnsupported, most < 0, "split at white space with a limit is not supported");
    std::string word;
    for (; !text.empty(); text.remove_prefix(first_of(text).size())) {
      const std::string_view character = first_of(text);
      if (!is_python_space(character)) {
        word += character;
      } else if (!word.empty()) {
        out.push_back(std::exchange(word, {}));
      }
    }
    if (!word.empty()) out.push_back(std::move(word));
    return out;
  }
  INTARSIA_CHECK(kData, !separator->empty(), "split at an empty text");
  for (; most != 0; --most) {
    const std::size_t found = from_right ? text.rfind(*separator) : text.find(*separator);
    if (found == text.npos) break;
    const std::string_view before = text.substr(0, found), behind = text.substr(found + separator->size());
    out.emplace_back(from_right ? behind : before);
    text = from_right ? before : behind;
  }
  out.emplace_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + (text.substr(end).starts_with("\r\n") ? 2 : 1);
  }
  return out;
}

std::string upper(std::string_view text) {
  return each(text, [](utf8proc_int32_t c, char32_t, bool) { return utf8proc_toupper(c); });
}

std::string lower(std::string_view text) {
  return each(text, [](utf8proc_int32_t c, char32_t, bool) { return utf8proc_tolower(c); });
}

std::string title(std::string_view text) {
  return each(text, [](utf8proc_int32_t c, char32_t before, bool) {
    return is_letter(before) ? utf8proc_tolower(c) : utf8proc_totitle(c);
  });
}

std::string title_words(std::string_view text) {
  return each(text, [](utf8proc_int32_t c, char32_t before, bool is_first) {
    const bool begins =
        is_first || is_white_space(before) ||
        (before < 0x80 && std::string_view("-({[<").find(static_cast<char>(before)) != std::string_view::npos);
    return begins ? utf8proc_toupper(c) : utf8proc_tolower(c);
  });
}

std::string capitalize(std::string_view text) {
  return each(text, [](utf8proc_int32_t c, char32_t, bool is_first) {
    return is_first ? utf8proc_totitle(c) : utf8proc_tolower(c);
  });
}

}  // namespace intarsia::formats::chat
