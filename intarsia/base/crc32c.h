// CRC-32C (Castagnoli), the checksum of checkpoint files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace intarsia {

// The checksum of `bytes`, or, given that of what stands before them, of both. crc32c("123456789") is 0xe3069283.
// Source: RFC 3720, appendix B.4.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Eight lowercase hexadecimal digits.
std::string crc32c_text(std::uint32_t crc);

}  // namespace intarsia
