#include "intarsia/data/data_paths.h"

#include <gtest/gtest.h>

#include <string>

#include "intarsia/base/error.h"
#include "intarsia/data/testing_files.h"

namespace intarsia::data {
namespace {

void expect_error(const std::vector<std::string>& paths, ErrorKind kind, const std::string& part) {
  try {
    find_data_files(paths);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

DataFiles only(const std::vector<std::string>& paths) {
  const auto sources = find_data_files(paths);
  EXPECT_EQ(sources.size(), 1u);
  return sources.front();
}

TEST(DataPaths, EndingTellsTheKind) {
  EXPECT_EQ(only({write_file("a.safetensors", "")}).kind, FileKind::kSamples);
  EXPECT_EQ(only({write_file("a.bin", "")}).kind, FileKind::kTokens);
  for (const char* name : {"a.txt", "a.jsonl", "a.json", "a", "a.md"}) {
    EXPECT_EQ(only({write_file(name, "")}).kind, FileKind::kDocuments) << name;
  }
}

TEST(DataPaths, GlobsComeInTheOrderOfNames) {
  const auto b = write_file("g2.txt", ""), a = write_file("g1.txt", ""), c = write_file("z.txt", "");
  EXPECT_EQ(only({c, temporary("g*.txt")}).paths, (std::vector<std::string>{c, a, b}));
}

TEST(DataPaths, NamesThatExistAreNoPatternsAndNoWeights) {
  const auto star = write_file("s[1].txt", ""), colon = write_file("a.txt:0.5", "");
  EXPECT_EQ(only({star, colon}).paths, (std::vector<std::string>{star, colon}));
}

TEST(DataPaths, AWeightMakesASource) {
  const auto a = write_file("w1.txt", ""), b = write_file("w2.txt", ""), c = write_file("c.bin", "");
  const auto sources = find_data_files({temporary("w*.txt") + ":3", c + ":0.5"});
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].paths, (std::vector<std::string>{a, b}));
  EXPECT_EQ(sources[0].weight, 3);
  EXPECT_EQ(sources[1].kind, FileKind::kTokens);
  EXPECT_EQ(sources[1].weight, 0.5);
}

TEST(DataPaths, RefusesWhatItCannotUseByName) {
  expect_error({}, ErrorKind::kUsage, "no data");
  expect_error({temporary("missing.txt")}, ErrorKind::kUsage, "no such file");
  expect_error({temporary("missing*.txt")}, ErrorKind::kUsage, "no file matches");
  expect_error({testing::TempDir()}, ErrorKind::kUsage, "folder");
  expect_error({write_file("a.txt", "") + ":0.7", write_file("b.txt", "")}, ErrorKind::kUsage, "either every file");
  expect_error({write_file("a.txt", "") + ":0"}, ErrorKind::kUsage, "above 0");
  expect_error({write_file("a.txt", "") + ":1.2.3"}, ErrorKind::kUsage, "above 0");
  expect_error({write_file("a.txt", ""), write_file("a.bin", "")}, ErrorKind::kConfig, "one kind");
}

}  // namespace
}  // namespace intarsia::data
