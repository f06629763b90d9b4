// Small helpers for messages: numbers, names from files, nearest words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia {

// A name from a file or a peer, safe to print: control characters as \xNN, cut at 256 bytes.
std::string printable(std::string_view text);

// The candidate with the smallest edit distance to `word`, if it is close enough to be what was meant.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

// Shortest decimal text that reads back as the same double; NaN and infinities as "nan", "inf", "-inf".
std::string shortest(double value);

// "1.50 GiB", "12 B".
std::string format_bytes(std::int64_t bytes);

// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

}  // namespace intarsia
