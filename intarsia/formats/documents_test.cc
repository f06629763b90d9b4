#include "intarsia/formats/documents.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

class DocumentsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("documents_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  static Texts read(const Texts& paths, DocumentOptions options = {}) {
    DocumentReader reader(paths, options);
    Texts texts;
    for (Document document; reader.next(document);) texts.push_back(document.text);
    EXPECT_EQ(reader.bytes_done(), reader.bytes_total());
    return texts;
  }
  static std::string message(const Texts& paths, ErrorKind kind) {
    try {
      read(paths);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return {};
  }

  fs::path folder_;
};

TEST_F(DocumentsTest, TakesATextFileAsOneDocument) {
  EXPECT_EQ(read({write("a.txt", "one\r\n\r\ntwo\n"), write("b", "\xEF\xBB\xBFthree")}),
            (Texts{"one\r\n\r\ntwo\n", "three"}));
}

TEST_F(DocumentsTest, SplitsTextAtBlankLines) {
  const std::string file = write("a.txt", "\n\none\ntwo\n\n \t\nthree\r\n\r\nfour");
  EXPECT_EQ(read({file}, {.split = TextSplit::kBlankLines}), (Texts{"one\ntwo\n", "three\r\n", "four\n"}));
}

TEST_F(DocumentsTest, ReadsJsonLines) {
  const std::string file = write("a.jsonl",
                                 "\xEF\xBB\xBF{\"text\": \"one\\u00e9\\n\"}\r\n\r\n{\"id\": 3, \"text\": \"two\"}\n"
                                 "{\"text\": \"\"}\n{\"text\": \"three\"}");
  EXPECT_EQ(read({file}), (Texts{"one\xC3\xA9\n", "two", "three"}));
}

TEST_F(DocumentsTest, TellsWhereADocumentBegins) {
  DocumentReader reader({write("a.jsonl", "\n{\"text\": \"one\"}\n")});
  Document document;
  ASSERT_TRUE(reader.next(document));
  EXPECT_EQ(document.origin, path("a.jsonl") + ":2");
}

TEST_F(DocumentsTest, NamesTheLineOfAMistake) {
  const std::string good = "{\"text\": \"one\"}\n";
  const auto second = [&](const std::string& line, ErrorKind kind) {
    const std::string text = message({write("a.jsonl", good + line + "\n")}, kind);
    EXPECT_NE(text.find("a.jsonl:2: "), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(second("{\"text\": \"two", ErrorKind::kData).find("not valid JSON"), std::string::npos);
  EXPECT_NE(second("[1]", ErrorKind::kData).find("array"), std::string::npos);
  EXPECT_NE(second("{\"text\": 3}", ErrorKind::kData).find("number"), std::string::npos);
  EXPECT_NE(second("{\"body\": \"x\", \"id\": 1}", ErrorKind::kData).find("body, id"), std::string::npos);
  EXPECT_NE(second("{\"messages\": []}", ErrorKind::kConfig).find("\"messages\""), std::string::npos);
  EXPECT_NE(second("{\"prompt\": \"a\"}", ErrorKind::kData).find("no \"completion\""), std::string::npos);
  EXPECT_FALSE(second(std::string(5000, '['), ErrorKind::kData).empty());
  EXPECT_NE(second("{\"text\": \"\xFF\"}", ErrorKind::kData).find("not UTF-8 (byte 10 of the line)"),
            std::string::npos);
}

TEST_F(DocumentsTest, RefusesTextThatIsNotUtf8) {
  EXPECT_NE(message({write("a.txt", "abc\xE9 d")}, ErrorKind::kData).find("a.txt: the text is not UTF-8 (byte 3"),
            std::string::npos);
}

TEST_F(DocumentsTest, RefusesEmptyData) {
  EXPECT_NE(message({write("a.txt", ""), write("b.txt", " \n\t")}, ErrorKind::kData).find("the data is empty"),
            std::string::npos);
  EXPECT_EQ(read({path("a.txt"), write("c.txt", "c")}), Texts{"c"});
}

TEST_F(DocumentsTest, RefusesOtherKindsByName) {
  EXPECT_NE(message({write("a.jsonl.xz", "x")}, ErrorKind::kUnsupported).find("unxz"), std::string::npos);
  EXPECT_NE(message({write("a.parquet.gz", "x")}, ErrorKind::kUnsupported).find("docs/data.md"), std::string::npos);
  EXPECT_NE(message({write("a.bin", "x")}, ErrorKind::kUnsupported).find("token files"), std::string::npos);
  EXPECT_NE(message({folder_.string()}, ErrorKind::kIo), "");
}

TEST_F(DocumentsTest, ReadsPromptsAndCompletions) {
  const std::string file = write("a.jsonl", "{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n");
  DocumentReader reader({file});
  Document document;
  ASSERT_TRUE(reader.next(document));
  EXPECT_EQ(document.kind, DocumentKind::kCompletion);
  EXPECT_EQ(document.text, "2+2=4");
  EXPECT_EQ(document.trained, (std::vector<TextSpan>{{4, 5}}));
  DocumentReader all({file}, {.train_on = TrainOn::kAll});
  ASSERT_TRUE(all.next(document));
  EXPECT_EQ(document.trained, (std::vector<TextSpan>{{0, 5}}));
}

TEST_F(DocumentsTest, SkipsAndCountsBadLinesWhenAsked) {
  const std::string file = write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"tw\n[]\n{\"text\": \"\xFF\"}\n" +
                                                std::string(20'000, '[') + "\n{\"id\": 1}\n{\"text\": \"two\"}\n");
  DocumentReader reader({file}, {.bad_lines = BadLines::kSkip});
  Texts texts;
  for (Document document; reader.next(document);) texts.push_back(document.text);
  EXPECT_EQ(texts, (Texts{"one", "two"}));
  EXPECT_EQ(reader.num_bad_lines(), 5);
  // Text files have no lines to skip.
  EXPECT_THROW(read({write("a.txt", "\xFF")}, {.bad_lines = BadLines::kSkip}), Error);
}

TEST_F(DocumentsTest, ALineOf100MegabytesIsABadLine) {
  const std::string good = "{\"text\": \"one\"}\n";
  const std::string file = write("a.jsonl", good + "{\"text\": \"" + std::string(100'000'000, 'a') + "\"}\n" + good);
  EXPECT_NE(message({file}, ErrorKind::kData).find("a.jsonl:2: a line of 95.37 MiB, allowed are 64"), std::string::npos)
      << message({file}, ErrorKind::kData);
  DocumentReader reader({file}, {.bad_lines = BadLines::kSkip});
  Texts origins;
  for (Document document; reader.next(document);) origins.push_back(document.origin);
  EXPECT_EQ(origins, (Texts{file + ":1", file + ":3"}));
  EXPECT_EQ(reader.num_bad_lines(), 1);
}

TEST_F(DocumentsTest, ALineMayBeAsLongAsAllowed) {
  const std::string frame = "{\"text\": \"\"}", text(kMaxLineBytes - frame.size(), 'a');
  EXPECT_EQ(read({write("a.jsonl", "{\"text\": \"" + text + "\"}\n")}), Texts{text});
}

TEST_F(DocumentsTest, ExpandsGlobs) {
  const std::string b = write("b.txt", "b"), a = write("a.txt", "a"), odd = write("[x].txt", "x");
  EXPECT_EQ(expand_paths({path("?.txt")}), (Texts{a, b}));
  EXPECT_EQ(expand_paths({odd, a}), (Texts{odd, a}));
  EXPECT_THROW(expand_paths({path("*.json")}), Error);
  EXPECT_THROW(expand_paths({path("missing.txt")}), Error);
  EXPECT_THROW(expand_paths({}), Error);
}

}  // namespace
}  // namespace intarsia::formats
