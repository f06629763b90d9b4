#include <gtest/gtest.h>

#include "intarsia/base/dtype.h"
#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"
#include "intarsia/base/text.h"

namespace intarsia {
namespace {

TEST(Philox, EqualsTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, NormalHasMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  const auto key = philox_key(1, "test");
  for (int i = 0; i < kCount; ++i) {
    const double value = philox_normal(key, static_cast<std::uint64_t>(i));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(Error, KindsHaveTheDocumentedExitCodes) {
  EXPECT_EQ(exit_code(ErrorKind::kConfig), 2);
  EXPECT_EQ(exit_code(ErrorKind::kMemory), 3);
  EXPECT_EQ(exit_code(ErrorKind::kComm), 4);
  EXPECT_EQ(exit_code(ErrorKind::kFormat), 5);
  EXPECT_EQ(exit_code(ErrorKind::kNumeric), 6);
  try {
    INTARSIA_CHECK(kConfig, 1 == 2, "value ", 3, " is not allowed");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(), "value 3 is not allowed");
  }
}

TEST(Text, NearestFindsAMisspelledKeyAndRefusesAFarOne) {
  EXPECT_EQ(nearest("gradient_clipp1ng", {"gradient_clipping", "fp16"}), "gradient_clipping");
  EXPECT_EQ(nearest("zzzzzz", {"gradient_clipping", "fp16"}), std::nullopt);
}

TEST(Text, ShortestRoundTrips) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(2e-5), "2e-05");
}

TEST(Text, PrintableEscapesControlCharacters) { EXPECT_EQ(printable("a\x1b[31m"), "a\\x1B[31m"); }

TEST(DType, NamesAndSizesAgree) {
  EXPECT_EQ(dtype_from_safetensors_name("BF16"), DType::kBF16);
  EXPECT_EQ(dtype_size(DType::kBF16), 2U);
  EXPECT_EQ(short_name(DType::kF32), "fp32");
  EXPECT_EQ(dtype_from_safetensors_name("Q4"), std::nullopt);
}

}  // namespace
}  // namespace intarsia
