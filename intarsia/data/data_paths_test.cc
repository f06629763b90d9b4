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

TEST(DataPaths, EndingTellsTheKind) {
  EXPECT_EQ(find_data_files({write_file("a.safetensors", "")}).kind, FileKind::kSamples);
  EXPECT_EQ(find_data_files({write_file("a.bin", "")}).kind, FileKind::kTokens);
  for (const char* name : {"a.txt", "a.jsonl", "a.json", "a", "a.md"}) {
    EXPECT_EQ(find_data_files({write_file(name, "")}).kind, FileKind::kDocuments) << name;
  }
}

TEST(DataPaths, GlobsComeInTheOrderOfNames) {
  const auto b = write_file("g2.txt", ""), a = write_file("g1.txt", ""), c = write_file("z.txt", "");
  EXPECT_EQ(find_data_files({c, temporary("g*.txt")}).paths, (std::vector<std::string>{c, a, b}));
}

TEST(DataPaths, NamesThatExistAreNoPatternsAndNoWeights) {
  const auto star = write_file("s[1].txt", ""), colon = write_file("a.txt:0.5", "");
  EXPECT_EQ(find_data_files({star, colon}).paths, (std::vector<std::string>{star, colon}));
}

TEST(DataPaths, RefusesWhatItCannotUseByName) {
  expect_error({}, ErrorKind::kUsage, "no data");
  expect_error({temporary("missing.txt")}, ErrorKind::kUsage, "no such file");
  expect_error({temporary("missing*.txt")}, ErrorKind::kUsage, "no file matches");
  expect_error({testing::TempDir()}, ErrorKind::kUsage, "folder");
  expect_error({write_file("a.txt", "") + ":0.7"}, ErrorKind::kUnsupported, "weights");
  expect_error({write_file("a.txt", ""), write_file("a.bin", "")}, ErrorKind::kConfig, "one kind");
}

}  // namespace
}  // namespace intarsia::data
