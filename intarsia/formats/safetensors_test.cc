#include "intarsia/formats/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"
#include "intarsia/formats/test_folder.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

const std::string kHf = "tests/fixtures/hf/";
const std::string kMalformed = "tests/fixtures/checkpoints/malformed/";

// A file with this header and `data_bytes` bytes behind it.
std::string file_text(const std::string& header, std::size_t data_bytes) {
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<std::uint64_t>(header.size()));
  return std::string(length.data(), 8) + header + std::string(data_bytes, '\1');
}

class SafetensorsTest : public TestFolder {
 protected:
  // Opens a file made of these parts.
  SafetensorsFile open(const std::string& header, std::size_t data_bytes) {
    io::write_file_atomic(path("x.safetensors"), file_text(header, data_bytes));
    return SafetensorsFile::open(path("x.safetensors"));
  }
  // The message that opening it gives.
  std::string refusal(const std::string& header, std::size_t data_bytes) {
    return format_error([&] { open(header, data_bytes); });
  }
};

TEST_F(SafetensorsTest, ReadsTheFixturesTensorsAndMetadata) {
  const auto file = SafetensorsFile::open(kHf + "llama-gqa/model/model.safetensors");
  EXPECT_EQ(file.tensors().size(), 21U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const TensorInfo& tensor = file.at("model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{12, 36}));
  EXPECT_EQ(tensor.numel(), 12 * 36);
  EXPECT_EQ(file.bytes(tensor).size(), 12U * 36 * 4);
  EXPECT_EQ(file.find("model.layers.2.mlp.up_proj.weight"), nullptr);
}

TEST_F(SafetensorsTest, RangesOfATensorEqualTheWhole) {
  const auto file = SafetensorsFile::open(kHf + "llama-bf16/model/model.safetensors");
  const TensorInfo& tensor = file.at("model.norm.weight");
  ASSERT_EQ(tensor.dtype, DType::kBF16);
  std::vector<float> whole(32), pieces(32);
  read_as_f32(file, tensor, 0, 32, whole.data());
  read_as_f32(file, tensor, 0, 5, pieces.data());
  read_as_f32(file, tensor, 5, 32, pieces.data() + 5);
  EXPECT_EQ(whole, pieces);
  std::uint16_t bits = 0;
  std::memcpy(&bits, file.bytes(tensor).data() + 14, 2);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(whole[7]), static_cast<std::uint32_t>(bits) << 16);
  format_error([&] { read_as_f32(file, tensor, 5, 33, whole.data()); });
}

TEST_F(SafetensorsTest, HalfAndDoubleWidenToTheirValues) {
  std::string text = file_text(
      R"({"h":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},"d":{"dtype":"F64","shape":[1],"data_offsets":[14,22]}})",
      0);
  const std::array<std::uint16_t, 7> halves{0x3C00, 0xC000, 0x0001, 0x8000, 0x7BFF, 0x7C00, 0x7E00};
  const double third = 1.0 / 3;
  text.append(reinterpret_cast<const char*>(halves.data()), 14);
  text.append(reinterpret_cast<const char*>(&third), 8);
  io::write_file_atomic(path("h.safetensors"), text);
  const auto file = SafetensorsFile::open(path("h.safetensors"));
  std::array<float, 7> out{};
  read_as_f32(file, file.at("h"), 0, 7, out.data());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], -2.0F);
  EXPECT_EQ(out[2], 0x1p-24F);
  EXPECT_TRUE(out[3] == 0 && std::signbit(out[3]));
  EXPECT_EQ(out[4], 65504.0F);
  EXPECT_TRUE(std::isinf(out[5]));
  EXPECT_TRUE(std::isnan(out[6]));
  read_as_f32(file, file.at("d"), 0, 1, out.data());
  EXPECT_EQ(out[0], 1.0F / 3);
}

TEST_F(SafetensorsTest, IntegersAreNotWeights) {
  const auto file = open(R"({"ids":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", 8);
  float out[2];
  EXPECT_NE(format_error([&] { read_as_f32(file, file.at("ids"), 0, 2, out); }).find("dtype I32"), std::string::npos);
}

TEST_F(SafetensorsTest, MissingBytesAreCountedWithFileAndTensor) {
  const std::string message = refusal(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 8);
  EXPECT_NE(message.find("x.safetensors: tensor \"w\""), std::string::npos) << message;
  EXPECT_NE(message.find("8 bytes missing"), std::string::npos) << message;
}

TEST_F(SafetensorsTest, RefusesEveryMalformedFixtureByItsCause) {
  const std::map<std::string, std::string> cause_of{
      {"truncated-data", "bytes missing"},
      {"header-beyond-file", "runs past the end"},
      {"header-length-huge", "above the limit"},
      {"overlap", "overlap"},
      {"negative-offset", "negative number"},
      {"reversed-offsets", "before they begin"},
      {"size-mismatch", "needs"},
      {"dtype-unknown", "dtype"},
      {"negative-shape", "negative number"},
      {"shape-overflow", "64 bits"},
      {"duplicate-key", "stands twice"},
      {"header-not-json", "JSON"},
      {"trailing-bytes", "after the last tensor"},
      {"hole", "belong to no tensor"},
      {"empty", "too few"},
      {"nested-too-deep", "cannot be"},
  };
  std::ifstream stream(kMalformed + "expected.json");
  std::size_t seen = 0;
  const auto expected = nlohmann::json::parse(stream);
  for (const auto& entry : expected.at("cases")) {
    if (entry.at("kind") != "safetensors") continue;
    const std::string name = entry.at("path");
    const std::string message = format_error([&] { SafetensorsFile::open(kMalformed + name); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
    const std::string cause = cause_of.at(name.substr(0, name.find('.')));
    EXPECT_NE(message.find(cause), std::string::npos) << name << ": " << message;
    ++seen;
  }
  EXPECT_EQ(seen, cause_of.size());
}

TEST_F(SafetensorsTest, AcceptsScalarsEmptyTensorsAndAnyOrder) {
  const auto file = open(
      R"({"b":{"shape":[],"data_offsets":[4,8],"dtype":"F32"},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
      R"("a":{"dtype":"I8","shape":[2,2],"data_offsets":[0,4]},"f":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}   )",
      8);
  EXPECT_EQ(file.tensors().front().name, "a");
  EXPECT_EQ(file.at("b").numel(), 1);
  EXPECT_EQ(file.at("e").numel(), 0);
  EXPECT_TRUE(open("{}", 0).tensors().empty());
}

TEST_F(SafetensorsTest, RefusesWhatTwoReadersCouldUnderstandDifferently) {
  const auto tensor = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  const std::vector<std::pair<std::string, std::string>> cases{
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"extra":"x")"), "unknown field \"extra\""},
      {tensor(R"("dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4])"), "field \"dtype\" stands twice"},
      {tensor(R"("dtype":"U8","shape":[4])"), "no data_offsets"},
      {tensor(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])"), "4.0"},
      {tensor(R"("dtype":"U8","shape":[4e0],"data_offsets":[0,4])"), "4e0"},
      {tensor(R"("dtype":"U8","shape":["4"],"data_offsets":[0,4])"), "the text \"4\""},
      {tensor(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4])"), "2^63"},
      {tensor(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,4])"), "99999999999999999999"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4,4])"), "more than two"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0])"), "two numbers"},
      {tensor(R"("dtype":"U8","shape":[[4]],"data_offsets":[0,4])"), "a list"},
      {tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,4])"), "dimensions"},
      {tensor(R"("dtype":"U8","shape":[04],"data_offsets":[0,4])"), "JSON"},
      {R"({"w":4})", "cannot be"},
      {R"({"w":null})", "cannot be null"},
      {R"({"a\nb":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "control character"},
      {"{\"" + std::string(1025, 'n') + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1025 bytes"},
      {R"({"__metadata__":{"k":1}})", "__metadata__"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "stands twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "stands twice"},
      {R"( {})", "does not begin"},
      {"{}\n", "does not end"},
      {R"({}})", "JSON"},
      {"", "does not begin"},
      {"{\"\xff\":{}}", "JSON"},
      {R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},})", "JSON"},
  };
  for (const auto& [header, cause] : cases) {
    const std::string message = refusal(header, 4);
    EXPECT_NE(message.find(cause), std::string::npos) << header << "\n" << message;
    EXPECT_NE(message.find("x.safetensors"), std::string::npos) << message;
  }
}

// With a sanitizer build this also finds reads out of bounds.
TEST_F(SafetensorsTest, DamagedFilesAreRefusedOrStayWithinTheFile) {
  const std::string good =
      file_text(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}} )",
                32);
  int refused = 0;
  constexpr int kFiles = 300;
  for (int i = 0; i < kFiles; ++i) {
    std::string bad = good;
    const std::uint64_t key = philox_key(7, "damage");
    const auto random = philox(key, static_cast<std::uint64_t>(i));
    for (std::uint32_t change = 0; change <= random[0] % 3; ++change)
      bad[random[1 + change % 2] % bad.size()] = "0123456789{}[]\":,-e\\u \xff"[random[3] / (change + 1) % 23];
    if (random[2] % 8 == 0) bad.resize(random[1] % bad.size());
    std::ofstream(path("bad.safetensors"), std::ios::binary) << bad;
    try {
      const auto file = SafetensorsFile::open(path("bad.safetensors"));
      for (const TensorInfo& tensor : file.tensors()) {
        std::vector<float> out(static_cast<std::size_t>(tensor.numel()));
        read_as_f32(file, tensor, 0, tensor.numel(), out.data());
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, kFiles / 2);
  EXPECT_LT(refused, kFiles);  // changes of the data are no damage to the form
}

TEST_F(SafetensorsTest, NoticesThatTheFileShrankBeforeReading) {
  const auto file = open(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  std::filesystem::resize_file(path("x.safetensors"), 20);
  float out[2];
  EXPECT_THROW(read_as_f32(file, file.at("w"), 0, 2, out), Error);
}

}  // namespace
}  // namespace intarsia::formats
