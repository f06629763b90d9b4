#include "intarsia/formats/indexed_dataset.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "intarsia/formats/test_folder.h"
#include "intarsia/formats/token_file.h"

namespace intarsia::formats {
namespace {

std::string bytes_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TEST(IndexedDataset, ReadsMegatronsIndex) {
  const std::string prefix = "tests/fixtures/checkpoints/indexed/i32_sentences_document";
  const IndexedDataset dataset = read_indexed_dataset(prefix + ".idx", 100);
  EXPECT_EQ(dataset.dtype, DType::kI32);
  EXPECT_EQ(dataset.num_tokens, 25);
  EXPECT_EQ(dataset.document_ends.size(), 4u);
  EXPECT_EQ(dataset.document_ends.back(), 25);
}

TEST(IndexedDataset, RefusesMalformedOnesByName) {
  for (const char* name : {"wrong-magic", "version", "dtype", "count-beyond", "count-overflow", "docs-beyond",
                           "truncated", "header-only", "negative-length", "pointer-beyond", "pointer-negative",
                           "doc-descending", "doc-beyond", "bin-truncated", "bin-missing"}) {
    const std::string path = std::string("tests/fixtures/checkpoints/malformed/idx-") + name + ".idx";
    try {
      TokenFile::open(path);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("idx-") + name + ".idx"), std::string::npos) << error.what();
    }
  }
}

class DamagedIndex : public TestFolder {};

TEST_F(DamagedIndex, EndsInAnError) {
  const std::string prefix = "tests/fixtures/checkpoints/indexed/u16_multimodal_document";
  const std::string good = bytes_of(prefix + ".idx");
  std::filesystem::copy(prefix + ".bin", path("a.bin"));
  const auto open = [&](const std::string& index) {
    std::ofstream(path("a.idx"), std::ios::binary) << index;
    TokenFile::open(path("a.bin"));
  };
  open(good);
  for (std::size_t size = 0; size < good.size(); ++size) {
    if (size == good.size() - 3) continue;  // without the modes, which may be missing
    EXPECT_THROW(open(good.substr(0, size)), Error) << size;
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char change : {'\x01', '\x80', '\xFF'}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ change);
      try {
        open(bad);
      } catch (const Error&) {
      }
    }
  }
}

class MapOfDocuments : public TestFolder {};

TEST_F(MapOfDocuments, ComesBackFromTheTokenFile) {
  TokenFileWriter writer(path("a.bin"), {.vocab_size = 10});
  writer.append_document(std::vector<std::int32_t>{1, 2}, {});
  writer.append_document(std::vector<std::int32_t>{3, 4, 5}, {false, true, true});
  writer.append_document(std::vector<std::int32_t>{6}, {true});
  writer.append_document(std::vector<std::int32_t>{7, 8}, {false, false});
  writer.set_counts(4, 1);
  writer.commit();
  const TokenFile file = TokenFile::open(path("a.bin"));
  ASSERT_TRUE(file.documents());
  EXPECT_EQ(file.documents()->ends, (std::vector<std::int64_t>{2, 5, 6, 8}));
  EXPECT_EQ(*file.documents()->trained, (std::vector<TokenRange>{{0, 2}, {3, 6}}));
  EXPECT_EQ(file.info().num_documents, 4);
  EXPECT_EQ(file.info().num_bad_lines, 1);
  // A file that is written again without documents must not keep the old map.
  TokenFileWriter again(path("a.bin"), {.vocab_size = 10});
  again.append(std::vector<std::int32_t>{1, 2, 3});
  again.commit();
  EXPECT_FALSE(TokenFile::open(path("a.bin")).documents());
}

TEST_F(MapOfDocuments, IsHeldAgainstTheTokens) {
  const auto refused = [&](const DocumentMap& map) {
    write_document_map(path("a"), map);
    return format_error([&] { read_document_map(path("a"), 8); });
  };
  EXPECT_NE(refused({{2, 5}, std::nullopt}).find("has 8"), std::string::npos);
  EXPECT_NE(refused({{5, 2, 8}, std::nullopt}).find("before it begins"), std::string::npos);
  EXPECT_NE(refused({{8}, std::vector<TokenRange>{{4, 2}}}).find("run 0"), std::string::npos);
  EXPECT_NE(refused({{8}, std::vector<TokenRange>{{0, 4}, {3, 5}}}).find("run 1"), std::string::npos);
  EXPECT_NE(refused({{8}, std::vector<TokenRange>{{0, 9}}}).find("run 0"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::formats
