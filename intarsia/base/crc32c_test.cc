#include "intarsia/base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace intarsia {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 3720, appendix B.4.
TEST(Crc32c, HasTheStandardsValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, GoesOnWhereItStopped) {
  const std::string text = "a text that is longer than a few words of eight bytes";
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(bytes_of(text).subspan(cut), crc32c(bytes_of(text).first(cut))), crc32c(bytes_of(text)));
}

TEST(Crc32c, PrintsEightDigits) { EXPECT_EQ(crc32c_text(0x00abc123), "00abc123"); }

}  // namespace
}  // namespace intarsia
