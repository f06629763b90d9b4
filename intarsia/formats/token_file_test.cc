#include "intarsia/formats/token_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "intarsia/base/error.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("token_file_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string message(const std::string& path, ErrorKind kind, std::int64_t vocab_size = 0) {
    try {
      const TokenFile file = TokenFile::open(path, vocab_size);
      std::vector<std::int64_t> all(static_cast<std::size_t>(file.size()));
      file.read(0, std::span<std::int64_t>(all));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return {};
  }

  fs::path folder_;
};

TEST_F(TokenFileTest, ReadsBackWhatWasWritten) {
  for (const std::int64_t vocab : {65536, 65537}) {
    const std::string file = path("t" + std::to_string(vocab) + ".bin");
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 700'000; ++i) ids.push_back(static_cast<std::int32_t>((i * 7919LL) % vocab));
    TokenFileWriter writer(
        file, {.dtype = token_dtype(vocab), .vocab_size = vocab, .tokenizer = "a \"b\"", .end_of_text = 5});
    writer.append(std::span(ids).first(3));
    writer.append(std::span(ids).subspan(3));
    EXPECT_FALSE(fs::exists(file));
    writer.commit();
    EXPECT_EQ(fs::file_size(file), ids.size() * (vocab == 65536 ? 2 : 4));

    const TokenFile reader = TokenFile::open(file);
    EXPECT_EQ(reader.size(), 700'000);
    EXPECT_EQ(reader.info().vocab_size, vocab);
    EXPECT_EQ(reader.info().tokenizer, "a \"b\"");
    EXPECT_EQ(reader.info().end_of_text, 5);
    std::vector<std::int32_t> back(ids.size());
    reader.read(0, std::span<std::int32_t>(back));
    EXPECT_EQ(back, ids);
    std::vector<std::int64_t> tail(2);
    reader.read(699'998, std::span<std::int64_t>(tail));
    EXPECT_EQ(tail[1], ids.back());
    EXPECT_THROW(reader.read(699'999, std::span<std::int64_t>(tail)), Error);
    EXPECT_THROW(reader.read(-1, std::span<std::int64_t>(tail)), Error);
  }
}

TEST_F(TokenFileTest, TakesAFileWithoutDescriptionAsU16) {
  const TokenFile reader = TokenFile::open(write("nano.bin", std::string("\x01\x00\xFF\xFF", 4)));
  std::vector<std::int64_t> ids(2);
  reader.read(0, std::span<std::int64_t>(ids));
  EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 65535}));
}

TEST_F(TokenFileTest, LeavesNothingWithoutCommit) {
  {
    TokenFileWriter writer(path("t.bin"), {.vocab_size = 10});
    writer.append(std::vector<std::int32_t>{1, 2});
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(TokenFileTest, RefusesSizesThatDoNotFit) {
  EXPECT_NE(message(write("odd.bin", "abc"), ErrorKind::kFormat).find("odd number"), std::string::npos);
  EXPECT_NE(message(write("none.bin", ""), ErrorKind::kData).find("no tokens"), std::string::npos);
  TokenFileWriter writer(path("cut.bin"), {.vocab_size = 10});
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  writer.commit();
  fs::resize_file(path("cut.bin"), 4);
  EXPECT_NE(message(path("cut.bin"), ErrorKind::kFormat).find("says 3 tokens"), std::string::npos);
}

TEST_F(TokenFileTest, RefusesTokensOutsideTheVocabulary) {
  const std::string plain = write("plain.bin", std::string("\x01\x00\x09\x00", 4));
  EXPECT_EQ(message(plain, ErrorKind::kData, 10), "");
  EXPECT_NE(message(plain, ErrorKind::kData, 9).find("token 1 is 9"), std::string::npos);
  TokenFileWriter writer(path("described.bin"), {.vocab_size = 10});
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{10}), Error);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{-1}), Error);
  writer.append(std::vector<std::int32_t>{1});
  writer.commit();
  EXPECT_NE(message(path("described.bin"), ErrorKind::kConfig, 9).find("the model has 9"), std::string::npos);
}

TEST_F(TokenFileTest, RefusesADescriptionOfSomethingElse) {
  write("t.bin", "ab");
  write("t.bin.json", "{\"format\": \"other\"}");
  EXPECT_NE(message(path("t.bin"), ErrorKind::kFormat).find("intarsia-tokens"), std::string::npos);
  write("t.bin.json", "{\"format\": \"intarsia-tokens\", \"version\": 1, \"dtype\": \"u8\", \"tokens\": 2}");
  EXPECT_NE(message(path("t.bin"), ErrorKind::kFormat).find("dtype"), std::string::npos);
  write("t.bin.json", "{\"format\": \"intarsia-tokens\", \"version\": 2}");
  EXPECT_NE(message(path("t.bin"), ErrorKind::kUnsupported).find("version 2"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::formats
