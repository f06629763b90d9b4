// Text as a byte-level tokenizer sees it: UTF-8 that may be broken, the byte alphabet, canonical composition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace intarsia::formats {

// What stands at one place of a byte string that is meant to be UTF-8.
struct Utf8Part {
  enum Kind { kValid, kInvalid, kCutShort };
  Kind kind;            // kCutShort: a valid beginning, but the string ends inside the code point
  std::size_t length;   // bytes; for kInvalid the maximal part that one U+FFFD replaces
  char32_t code_point;  // for kValid
};

// The part of `bytes` at `at` (below bytes.size()). Source: Unicode standard, section 3.9, table 3-7 and "maximal
// subpart".
Utf8Part utf8_part(std::string_view bytes, std::size_t at);

// Where the first byte that is not valid UTF-8 stands; none if all is valid.
std::optional<std::size_t> first_invalid_utf8(std::string_view bytes);

// The bytes with each maximal invalid part replaced by one U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

// Appends a code point (at most U+10FFFF, no surrogate) as UTF-8.
void append_utf8(std::string& out, char32_t code_point);

// White_Space of Unicode, and what a regular expression calls \w (letters, marks, decimal digits, connectors).
bool is_white_space(char32_t code_point);
bool is_word_character(char32_t code_point);

// The printable stand-ins for the 256 bytes that byte-level vocabularies are written in: bytes that print stand for
// themselves, the others for U+0100 and up. Source: the GPT-2 release.
std::string to_byte_alphabet(std::string_view bytes);
// The bytes that a token of such a vocabulary stands for; none if a character is outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view token);

// "<0x0A>", the token that stands for a byte in a vocabulary of characters; its byte, or none for any other text.
std::string byte_token(unsigned char byte);
std::optional<unsigned char> from_byte_token(std::string_view token);

// Every `from` (not empty) replaced by `to`, from left to right.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// Unicode normalization form C of valid UTF-8.
std::string normalize_nfc(std::string_view text);

}  // namespace intarsia::formats
