#include "intarsia/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace intarsia {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bits reversed

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// table[k][b]: what byte b contributes when k bytes follow it in a block of eight.
constexpr Table make_table() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[0][byte] = crc;
  }
  for (std::size_t k = 1; k < table.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xff];
  return table;
}

constexpr Table kTable = make_table();

std::uint32_t add_byte(std::uint32_t crc, std::byte byte) {
  return (crc >> 8) ^ kTable[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
}

std::uint64_t load_word(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

std::uint32_t add_words_by_table(std::uint32_t crc, const std::byte* bytes, std::size_t words) {
  for (; words > 0; --words, bytes += 8) {
    const std::uint64_t word = load_word(bytes) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTable[7 - k][(word >> (8 * k)) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t add_words_by_instruction(std::uint32_t crc, const std::byte* bytes,
                                                                         std::size_t words) {
  std::uint64_t state = crc;
  for (; words > 0; --words, bytes += 8) state = __builtin_ia32_crc32di(state, load_word(bytes));
  return static_cast<std::uint32_t>(state);
}
#endif

std::uint32_t add_words(std::uint32_t crc, const std::byte* bytes, std::size_t words) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return add_words_by_instruction(crc, bytes, words);
#endif
  return add_words_by_table(crc, bytes, words);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  const std::size_t words = bytes.size() / 8;
  std::uint32_t crc = add_words(~before, bytes.data(), words);
  for (const std::byte byte : bytes.subspan(words * 8)) crc = add_byte(crc, byte);
  return ~crc;
}

std::string crc32c_text(std::uint32_t crc) {
  std::string text(8, '0');
  for (std::size_t digit = 8; digit > 0; --digit, crc >>= 4) text[digit - 1] = "0123456789abcdef"[crc & 0xf];
  return text;
}

}  // namespace intarsia
