#include "intarsia/formats/tensorboard/event_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[(static_cast<unsigned char>(c) >> shift) & 15];
  return out;
}

// The expected bytes were written by TensorBoard's own EventFileWriter (tests/slow/monitors.py makes the same ones).
TEST(EventFile, BytesAreThoseOfTensorBoard) {
  EXPECT_EQ(hex(version_event(1.5)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
  const ScalarValue loss{"train/loss", 2.5F};
  EXPECT_EQ(hex(scalars_event(1.5, 300, {&loss, 1})),
            "09000000000000f83f10ac022a130a110a0a747261696e2f6c6f73731500002040");
  EXPECT_EQ(hex(restart_event(1.5, 7)), "09000000000000f83f10073a020801");
}

TEST(EventFile, RecordIsLengthAndBytesEachWithItsMaskedChecksum) {
  const std::string record = tf_record(version_event(1.5));
  ASSERT_EQ(record.size(), 8U + 4 + 24 + 4);
  EXPECT_EQ(hex(record.substr(0, 12)), "1800000000000000a37f4b22");
  EXPECT_EQ(record.substr(12, 24), version_event(1.5));
  EXPECT_EQ(hex(record.substr(36)), "2a28646c");
}

TEST(EventFile, NamesOfOneFolderStandInTheOrderOfWriting) {
  const std::string folder = testing::TempDir() + "event_files";
  std::filesystem::remove_all(folder);
  std::string before;
  for (int i = 0; i < 3; ++i) {
    const EventFile file(folder, 1e9, i);  // the clock may stand still, or go back
    EXPECT_GT(file.path(), before);
    before = file.path();
  }
}

TEST(EventFile, SaysWhichFolderCannotBeMade) {
  const std::string file = testing::TempDir() + "a_file";
  io::write_file_atomic(file, "x");
  try {
    EventFile(file + "/tb", 1, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find(file), std::string::npos);
  }
}

}  // namespace
}  // namespace intarsia::formats
