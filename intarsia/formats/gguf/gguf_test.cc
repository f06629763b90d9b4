#include "intarsia/formats/gguf/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "intarsia/formats/gguf/gguf_to_hf.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/formats/test_folder.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::formats {
namespace {

const std::string kFolder = "tests/fixtures/gguf/";

std::string bytes_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TEST(Gguf, DequantisesEveryTypeAsTheReference) {
  const GgufFile file = GgufFile::open(kFolder + "blocks.gguf");
  const SafetensorsFile expected = SafetensorsFile::open(kFolder + "blocks.safetensors");
  ASSERT_EQ(file.tensors().size(), 7u);
  for (const GgufTensor& tensor : file.tensors()) {
    const auto want = expected.bytes(tensor.name);
    std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
    for (std::int64_t row = 0; row < tensor.num_rows(); ++row)
      file.read_row(tensor, row, values.data() + row * tensor.row_numel());
    ASSERT_EQ(want.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(want.data(), values.data(), want.size()), 0) << tensor.name;
  }
}

class GgufFolder : public TestFolder {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
};

TEST_F(GgufFolder, BecomesAHuggingFaceDirectory) {
  for (const std::string name : {"llama", "qwen2"}) {
    gguf_to_hf(GgufFile::open(kFolder + name + ".gguf"), path(name), DType::kF32);
    const ModelDirectory model = ModelDirectory::open(path(name));
    const SafetensorsFile expected = SafetensorsFile::open(kFolder + name + ".safetensors");
    EXPECT_EQ(model.num_tensors(), expected.tensors().size());
    for (const TensorInfo& tensor : expected.tensors()) {
      const LocatedTensor found = model.find(tensor.name);
      ASSERT_NE(found.tensor, nullptr) << tensor.name;
      EXPECT_EQ(found.tensor->shape, tensor.shape) << tensor.name;
      const auto left = expected.bytes(tensor), right = found.file->bytes(*found.tensor);
      EXPECT_TRUE(left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0)
          << tensor.name;
    }
    const Tokenizer tokenizer = Tokenizer::load(path(name));
    for (const auto& c : nlohmann::json::parse(bytes_of(kFolder + "tokenizer_" + name + ".json"))) {
      EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>(), true), c["ids"].get<std::vector<std::int32_t>>())
          << c["text"];
    }
  }
  const HfConfig config = read_hf_config(path("llama"));
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<std::int64_t>{2});
  EXPECT_NE(bytes_of(path("llama/tokenizer_config.json")).find("{{ bos_token }}"), std::string::npos);
  const auto qwen = nlohmann::json::parse(bytes_of(path("qwen2/config.json")));
  EXPECT_EQ(qwen["model_type"], "qwen2");
  EXPECT_EQ(qwen["tie_word_embeddings"], true);
  EXPECT_NE(error_of(ErrorKind::kUsage,
                     [&] { gguf_to_hf(GgufFile::open(kFolder + "llama.gguf"), path("llama"), DType::kF32); })
                .find("config.json already"),
            std::string::npos);
}

TEST_F(GgufFolder, RoundsToSixteenBits) {
  const GgufFile file = GgufFile::open(kFolder + "llama.gguf");
  const SafetensorsFile expected = SafetensorsFile::open(kFolder + "llama.safetensors");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::string folder = path(std::string(short_name(dtype)));
    gguf_to_hf(file, folder, dtype);
    const SafetensorsFile written = SafetensorsFile::open(folder + "/model.safetensors");
    const std::string name = "model.layers.0.self_attn.q_proj.weight";
    const TensorInfo& tensor = written.at(name);
    EXPECT_EQ(tensor.dtype, dtype);
    std::vector<float> exact(static_cast<std::size_t>(tensor.numel())), rounded(exact.size());
    read_as_f32(expected, expected.at(name), 0, tensor.numel(), exact.data());
    read_as_f32(written, tensor, 0, tensor.numel(), rounded.data());
    const float step = dtype == DType::kBF16 ? 0x1p-8F : 0x1p-11F;
    for (std::size_t i = 0; i < exact.size(); ++i)
      EXPECT_LE(std::abs(exact[i] - rounded[i]), std::max(step * std::abs(exact[i]), 0x1p-25F)) << exact[i];
  }
}

TEST_F(GgufFolder, RefusesWhatItDoesNotKnowByName) {
  const auto changed = [&](const std::string& from, const std::string& to, ErrorKind kind) {
    std::string bytes = bytes_of(kFolder + "llama.gguf");
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    bytes.replace(at, from.size(), to);
    write("a.gguf", bytes);
    return error_of(kind, [&] { gguf_to_hf(GgufFile::open(path("a.gguf")), path("out"), DType::kF32); });
  };
  const auto unsupported = ErrorKind::kUnsupported;
  EXPECT_NE(changed("llama.rope.freq_base", "llama.rope.freq_bass", unsupported).find("llama.rope.freq_bass"),
            std::string::npos);
  EXPECT_NE(changed("blk.0.attn_v.weight", "blk.0.attn_w.weight", unsupported).find("blk.0.attn_w.weight"),
            std::string::npos);
  EXPECT_NE(changed("tokenizer.ggml.scores", "tokenizer.ggml.scorez", unsupported).find("scorez"), std::string::npos);
  EXPECT_NE(changed("blk.0.ffn_up.weight", "blk.0.ffn_UP.weight", unsupported).find("ffn_UP"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

// Cut anywhere, or with any byte changed: an error or a file that is read, never a crash, and no memory beyond the
// file.
TEST_F(GgufFolder, SurvivesDamage) {
  const std::string good = bytes_of(kFolder + "blocks.gguf");
  const auto open = [&](const std::string& bytes) {
    write("a.gguf", bytes);
    const GgufFile file = GgufFile::open(path("a.gguf"));
    for (const GgufTensor& tensor : file.tensors()) {
      if (tensor.numel() > 1'000'000 || tensor.num_rows() == 0) continue;
      std::vector<float> row(static_cast<std::size_t>(tensor.row_numel()));
      file.read_row(tensor, tensor.num_rows() - 1, row.data());
    }
  };
  open(good);
  for (std::size_t size = 0; size < good.size(); size += size < 1024 ? 7 : 997)
    EXPECT_THROW(open(good.substr(0, size)), Error) << size;
  for (std::size_t at = 0; at < 700; at += 3) {
    for (const char change : {'\x01', '\x80', '\xFF'}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ change);
      try {
        open(bad);
      } catch (const Error& error) {
        EXPECT_TRUE(error.kind() == ErrorKind::kFormat || error.kind() == ErrorKind::kUnsupported) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace intarsia::formats
