#include "intarsia/io/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::io {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "intarsia-io-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_F(FileTest, AtomicWriteReplacesTheFileAndLeavesNoTemporary) {
  write_file_atomic(path("a"), "old");
  write_file_atomic(path("a"), "new text");
  EXPECT_EQ(read_text_file(path("a"), 100), "new text");
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileTest, AtomicWriteThatFailsKeepsTheOldFolderClean) {
  fs::create_directory(path("target"));  // rename over a folder fails
  const std::string message = message_of([&] { write_file_atomic(path("target"), "x"); });
  EXPECT_NE(message.find("rename"), std::string::npos) << message;
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileTest, ErrorsNameOperationPathAndReason) {
  const std::string message = message_of([&] { open_read(path("absent")); });
  EXPECT_NE(message.find("cannot open"), std::string::npos) << message;
  EXPECT_NE(message.find("absent: No such file or directory"), std::string::npos) << message;
}

TEST_F(FileTest, FullDiskSaysHowMuchIsFree) {
  const std::string message = message_of([&] { fail_io("write", path("absent"), ENOSPC); });
  EXPECT_NE(message.find("No space left on device ("), std::string::npos) << message;
  EXPECT_NE(message.find("free there"), std::string::npos) << message;
}

TEST_F(FileTest, ReadRefusesFoldersAndPipesWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(message_of([&] { open_read(path("pipe")); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(message_of([&] { open_read(folder_); }).find("a folder"), std::string::npos);
}

TEST_F(FileTest, ReadTextRefusesAFileAboveTheLimit) {
  write_file_atomic(path("a"), "12345");
  EXPECT_EQ(read_text_file(path("a"), 5), "12345");
  try {
    read_text_file(path("a"), 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
  }
}

TEST_F(FileTest, CreateExclusiveRefusesFilesAndLinks) {
  write_file_atomic(path("a"), "x");
  fs::create_symlink("elsewhere", path("link"));
  EXPECT_NE(message_of([&] { create_exclusive(path("a")); }).find("File exists"), std::string::npos);
  EXPECT_NE(message_of([&] { create_exclusive(path("link")); }).find("File exists"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("elsewhere")));
}

TEST_F(FileTest, PiecesLandAtTheirOffsetsInAPreallocatedFile) {
  const Fd fd = create_exclusive(path("a"));
  preallocate(fd, path("a"), 6);
  EXPECT_EQ(file_size(fd, path("a")), 6U);
  write_all_at(fd, path("a"), 3, as_bytes("def"));
  write_all_at(fd, path("a"), 0, as_bytes("abc"));
  fsync_file(fd, path("a"));
  EXPECT_EQ(read_text_file(path("a"), 6), "abcdef");
}

TEST_F(FileTest, ReadBeyondTheEndSaysWhatIsMissing) {
  write_file_atomic(path("a"), "12345");
  std::byte buffer[8];
  const std::string message = message_of([&] { read_exact_at(open_read(path("a")), path("a"), 2, buffer); });
  EXPECT_NE(message.find("5 bytes missing"), std::string::npos) << message;
}

TEST_F(FileTest, MapShowsTheBytesAndChecksViews) {
  write_file_atomic(path("a"), "abcdef");
  MappedFile first = MappedFile::open(path("a"));
  const MappedFile file = std::move(first);
  EXPECT_EQ(file.size(), 6U);
  EXPECT_EQ(file.view(2, 3)[0], std::byte{'c'});
  EXPECT_EQ(file.view(6, 0).size(), 0U);
  message_of([&] { file.view(5, 2); });
  message_of([&] { file.view(7, 0); });
  message_of([&] { file.view(1, ~std::uint64_t{0}); });
}

TEST_F(FileTest, MapOfAnEmptyFileIsEmpty) {
  write_file_atomic(path("a"), "");
  EXPECT_TRUE(MappedFile::open(path("a")).bytes().empty());
}

TEST_F(FileTest, MapNoticesThatTheFileShrank) {
  write_file_atomic(path("a"), "abcdef");
  const MappedFile file = MappedFile::open(path("a"));
  file.check_unchanged();
  fs::resize_file(path("a"), 2);
  EXPECT_NE(message_of([&] { file.check_unchanged(); }).find("had 6 bytes and has 2"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::io
