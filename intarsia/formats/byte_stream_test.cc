#include "intarsia/formats/byte_stream.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>

#include "intarsia/formats/documents.h"
#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

std::string gzip(const std::string& text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - state.avail_out);
  deflateEnd(&state);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class ByteStreams : public TestFolder {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string read(const std::string& path) {
    const auto stream = ByteStream::open(path);
    std::string out;
    for (std::string block; stream->read(block);) out += block;
    return out;
  }
};

std::string long_text() {
  std::string text;
  for (std::int64_t i = 0; text.size() < 3'000'000; ++i) text += "line " + std::to_string(i * i) + "\n";
  return text;
}

TEST_F(ByteStreams, UnpackByTheirNames) {
  const std::string text = long_text();
  EXPECT_EQ(read(write("a.txt", text)), text);
  EXPECT_EQ(read(write("a.gz", gzip(text))), text);
  EXPECT_EQ(read(write("a.zst", zstd(text))), text);
  // Both formats allow several packings one after another.
  EXPECT_EQ(read(write("b.gz", gzip(text) + gzip("end"))), text + "end");
  EXPECT_EQ(read(write("b.zst", zstd("begin") + zstd(text))), "begin" + text);
  EXPECT_EQ(read(write("c.gz", gzip(""))), "");
  const auto stream = ByteStream::open(path("a.gz"));
  for (std::string block; stream->read(block);) continue;
  EXPECT_EQ(stream->bytes_done(), std::filesystem::file_size(path("a.gz")));
}

TEST_F(ByteStreams, RefuseDamage) {
  const std::string text = long_text();
  for (const auto& [name, packed] : {std::pair<std::string, std::string>("a.gz", gzip(text)), {"a.zst", zstd(text)}}) {
    EXPECT_NE(format_error([&] { read(write(name, packed.substr(0, packed.size() / 2))); }).find(name),
              std::string::npos);
    EXPECT_NE(format_error([&] { read(write(name, "no " + packed)); }).find("damaged"), std::string::npos);
    for (std::size_t at = 20; at < packed.size(); at += packed.size() / 20) {
      std::string bad = packed;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      try {
        read(write(name, bad));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      }
    }
  }
}

TEST_F(ByteStreams, AreDocumentsOfTheKindInside) {
  DocumentReader reader(
      {write("a.jsonl.gz", gzip("{\"text\": \"one\"}\n{\"text\": \"two\"}\n")), write("b.txt.zst", zstd("three"))});
  std::vector<std::string> texts;
  for (Document document; reader.next(document);) texts.push_back(document.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(reader.bytes_done(), reader.bytes_total());
}

}  // namespace
}  // namespace intarsia::formats
