// Python's functions of texts, on valid UTF-8. Internal to formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::formats::chat {

enum class Side { kBoth, kLeft, kRight };

// Without the characters of `characters`, or white space, at its ends.
std::string strip(std::string_view text, const std::optional<std::string>& characters, Side side = Side::kBoth);
// The first `count` (below 0: all) of `from` replaced by `to`. An empty `from` is refused: kData.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);
// At white space, or at each `separator`; at most `most` cuts, from the left or the right, below 0: all.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator, std::int64_t most,
                               bool from_right);
// Lines without their ends (LF, CR or both).
std::vector<std::string> split_lines(std::string_view text);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
// Each word with a capital: Python's title() begins a word behind whatever is no letter, Jinja's filter behind white
// space, dashes and opening brackets.
std::string title(std::string_view text);
std::string title_words(std::string_view text);
std::string capitalize(std::string_view text);

}  // namespace intarsia::formats::chat
