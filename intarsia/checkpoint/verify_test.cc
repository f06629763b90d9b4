#include "intarsia/checkpoint/verify.h"

#include <random>

#include "intarsia/checkpoint/block_sums.h"
#include "intarsia/checkpoint/testing_run.h"

namespace intarsia::checkpoint {
namespace {

// A file of two whole blocks and a part of one.
class VerifyTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    bytes_.resize(2 * kBlockBytes + 1000);
    std::mt19937 random(1);
    for (char& byte : bytes_) byte = static_cast<char>(random());
    write();
    BlockSums sums;  // cut at odd places
    for (std::size_t at = 0; at < bytes_.size(); at += 300'001)
      sums.add(io::as_bytes(bytes_).subspan(at, std::min<std::size_t>(300'001, bytes_.size() - at)));
    file_ = {.name = body_name(0), .bytes = bytes_.size(), .blocks = sums.take()};
  }
  std::string path() const { return folder_ + "/" + body_name(0); }
  void write() { io::write_file_atomic(path(), bytes_); }
  void flip(std::size_t at) {
    bytes_[at] = static_cast<char>(bytes_[at] ^ 4);
    write();
  }

  std::string bytes_;
  StoredFile file_;
};

TEST_F(VerifyTest, AFlippedByteIsReportedWithFileAndRange) {
  verify_file(folder_, file_, Verify::kHashes);
  for (const std::size_t at : {std::size_t{0}, kBlockBytes - 1, kBlockBytes, 2 * kBlockBytes + 999}) {
    flip(at);
    const std::uint64_t begin = at / kBlockBytes * kBlockBytes;
    const std::string expected =
        concat(path(), " is damaged: its bytes ", begin, " to ",
               std::min<std::uint64_t>(begin + kBlockBytes, bytes_.size()), " have the CRC-32C ");
    const std::string message = error_of(ErrorKind::kFormat, [&] { verify_file(folder_, file_, Verify::kHashes); });
    EXPECT_TRUE(message.starts_with(expected)) << message;
    EXPECT_EQ(error_of(ErrorKind::kFormat, [&] { verify_on_disk(folder_, file_); }), message);
    flip(at);
  }
}

TEST_F(VerifyTest, OnlyTheBlocksAskedForAreRead) {
  flip(kBlockBytes);
  const io::Fd fd = io::open_read(path());
  verify_blocks(fd, path(), file_, {0, 2});
  EXPECT_NE(error_of(ErrorKind::kFormat, [&] { verify_blocks(fd, path(), file_, {0, 1}); }), "");
}

TEST_F(VerifyTest, SizesAreCheckedWithoutReading) {
  flip(5);
  verify_file(folder_, file_, Verify::kSizes);
  std::filesystem::resize_file(path(), bytes_.size() - 1);
  EXPECT_NE(error_of(ErrorKind::kFormat, [&] { verify_file(folder_, file_, Verify::kSizes); }).find("it is cut off"),
            std::string::npos);
}

}  // namespace
}  // namespace intarsia::checkpoint
