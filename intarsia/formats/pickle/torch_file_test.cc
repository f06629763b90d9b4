#include "intarsia/formats/pickle/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

const std::string kCheckpoints = "tests/fixtures/checkpoints/";

std::string bytes_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

Pickle pickle(const std::string& text) { return Pickle::read(as_bytes(text), "p"); }
Pickle pickle(std::string&&) = delete;  // its values point into the text

std::string refusal(const std::string& text, ErrorKind kind = ErrorKind::kFormat) {
  return error_of(kind, [&] { pickle(text); });
}

TEST(Pickle, BuildsPlainData) {
  // {"a": [1, -2, 300, 2.5, None, True], "b": (b"xy", 1 << 40)} in protocol 2, and its memo.
  constexpr char kBytes[] =
      "\x80\x02}q\0(X\1\0\0\0aq\1]q\2(K\1J\xFE\xFF\xFF\xFFM,\1G@\x04\0\0\0\0\0\0N\x88"
      "eX\1\0\0\0b"
      "C\2xy\x8a\6\0\0\0\0\0\1\x86u.";
  const std::string text(kBytes, sizeof kBytes - 1);
  const Pickle data = pickle(text);
  const PickleValue root = data.root();
  ASSERT_EQ(root.kind(), PickleKind::kDict);
  const PickleValue list = *root.find("a");
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[1].integer(), -2);
  EXPECT_EQ(list[2].integer(), 300);
  EXPECT_EQ(list[3].number(), 2.5);
  EXPECT_EQ(list[4].kind(), PickleKind::kNone);
  EXPECT_EQ(list[5].integer(), 1);
  EXPECT_EQ((*root.find("b"))[0].text(), "xy");
  EXPECT_EQ((*root.find("b"))[1].integer(), std::int64_t{1} << 40);
  EXPECT_FALSE(root.find("c"));
}

TEST(Pickle, RefusesEveryClassAndOpcodeItDoesNotKnow) {
  EXPECT_NE(refusal("cos\nsystem\n(X\4\0\0\0exittR.", ErrorKind::kUnsupported).find("os.system"), std::string::npos);
  EXPECT_NE(refusal("\x80\4\x8c\x08"
                    "builtins\x8c\4exec\x93.",
                    ErrorKind::kUnsupported)
                .find("builtins.exec"),
            std::string::npos);
  EXPECT_NE(refusal("(S'echo'\nios\nsystem\n.", ErrorKind::kUnsupported).find("opcode 0x53"), std::string::npos);
  EXPECT_NE(refusal("\x82\1.", ErrorKind::kUnsupported).find("opcode 0x82"), std::string::npos);
  EXPECT_NE(refusal("\x80\6N.", ErrorKind::kUnsupported).find("protocol 6"), std::string::npos);
}

TEST(Pickle, RefusesDamage) {
  EXPECT_NE(refusal("").find("it ends"), std::string::npos);
  EXPECT_NE(refusal("N").find("it ends"), std::string::npos);
  EXPECT_NE(refusal("0.").find("empty stack"), std::string::npos);
  EXPECT_NE(refusal("h\5.").find("memo 5"), std::string::npos);
  EXPECT_NE(refusal("NN.").find("values are left"), std::string::npos);
  EXPECT_NE(refusal("e.").find("mark"), std::string::npos);
  EXPECT_NE(refusal("NNs.").find("empty stack"), std::string::npos);
  EXPECT_NE(refusal("NNNs.").find("no dict"), std::string::npos);
  EXPECT_NE(refusal(std::string("\x8e\0\0\0\0\0\0\0\x10N.", 11)).find("bytes more"), std::string::npos);
  EXPECT_NE(refusal("]q\1h\1a.").find("contains itself"), std::string::npos);
  EXPECT_NE(refusal(std::string(300, ']') + std::string(299, 'a') + ".").find("nested"), std::string::npos);
  EXPECT_NE(refusal(")" + std::string(60'000, '\x85') + ".").find("nested"), std::string::npos);
}

// What trainers write, every file of them, is read.
TEST(TorchArchive, ReadsThePeersFiles) {
  int archives = 0, pickles = 0;
  for (const char* folder : {"deepspeed", "dcp"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kCheckpoints + folder)) {
      const std::string path = entry.path().string();
      if (!entry.is_regular_file()) continue;
      if (path.ends_with(".metadata") || path.ends_with(".pkl")) {
        const std::string bytes = bytes_of(path);
        if (bytes.starts_with("PK")) continue;
        Pickle::read(as_bytes(bytes), path);
        ++pickles;
      } else if (path.ends_with(".pt")) {
        const std::string bytes = bytes_of(path);
        TorchArchive::read(as_bytes(bytes), path);
        ++archives;
      }
    }
  }
  EXPECT_GT(archives, 30);
  EXPECT_GT(pickles, 4);
}

TEST(TorchArchive, GivesTheTensorsOfAModel) {
  const std::string folder = kCheckpoints + "deepspeed/z0-w2-fp32/";
  std::string path;
  for (const auto& entry : fs::recursive_directory_iterator(folder + "ckpt"))
    if (entry.path().filename() == "mp_rank_00_model_states.pt") path = entry.path().string();
  const std::string bytes = bytes_of(path);
  const TorchArchive archive = TorchArchive::read(as_bytes(bytes), path);
  const auto module = archive.root().find("module");
  ASSERT_TRUE(module);
  const SafetensorsFile expected = SafetensorsFile::open(folder + "expected.safetensors");
  for (const TensorInfo& info : expected.tensors()) {
    const auto value = module->find(info.name);
    ASSERT_TRUE(value) << info.name;
    const auto tensor = archive.tensor(*value);
    ASSERT_TRUE(tensor) << info.name;
    EXPECT_EQ(tensor->shape, info.shape);
    const auto left = archive.bytes(*tensor), right = expected.bytes(info);
    EXPECT_TRUE(left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0) << info.name;
  }
}

TEST(TorchArchive, RefusesMalformedFilesByName) {
  for (const char* name : {"os-system",
                           "builtins-exec",
                           "unknown-class",
                           "legacy-os-system",
                           "tensor-beyond-storage",
                           "storage-claims-more",
                           "negative-stride",
                           "negative-storage-offset",
                           "stride-overflow",
                           "storage-missing",
                           "storage-key-dotdot",
                           "compressed",
                           "pickle-memo-missing",
                           "pickle-stack-underflow",
                           "pickle-truncated",
                           "pickle-length-bomb",
                           "pickle-deep",
                           "pickle-bad-opcode",
                           "crc-wrong",
                           "zip-truncated"}) {
    const std::string path = kCheckpoints + "malformed/" + name + ".pt";
    try {
      open_torch_weights(path);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string(name) + ".pt"), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(fs::exists("PWNED"));
}

class TorchFolder : public TestFolder {};

TEST_F(TorchFolder, IsAModelDirectoryLikeAnyOther) {
  const ModelDirectory expected = ModelDirectory::open("tests/fixtures/hf/llama-tied/model");
  fs::copy("tests/fixtures/torch_bin/pytorch_model.bin", path("pytorch_model.bin"));
  const ModelDirectory model = ModelDirectory::open(folder_);
  EXPECT_EQ(model.num_tensors(), expected.num_tensors() + 1);
  for (const TensorInfo& tensor : expected.files().front().tensors()) {
    const LocatedTensor found = model.find(tensor.name);
    ASSERT_NE(found.tensor, nullptr) << tensor.name;
    EXPECT_EQ(found.tensor->shape, tensor.shape);
    const auto left = expected.files().front().bytes(tensor), right = found.file->bytes(*found.tensor);
    EXPECT_TRUE(left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0) << tensor.name;
  }
  EXPECT_EQ(model.find("lm_head.weight").tensor->begin, model.find("model.embed_tokens.weight").tensor->begin);
  // As shards with an index.
  fs::rename(path("pytorch_model.bin"), path("a.bin"));
  std::string index = "{\"weight_map\": {";
  for (const TensorInfo& tensor : model.files().front().tensors())
    index += (index.ends_with('{') ? "\"" : ", \"") + tensor.name + "\": \"a.bin\"";
  std::ofstream(path("pytorch_model.bin.index.json")) << index + "}}";
  EXPECT_EQ(ModelDirectory::open(folder_).num_tensors(), model.num_tensors());
}

// Cut anywhere, or with any byte changed: an error or a file that is read, never a crash.
TEST_F(TorchFolder, SurvivesDamage) {
  const std::string source = kCheckpoints + "deepspeed/z2-w2-fp16/ckpt";
  std::string good;
  for (const auto& entry : fs::recursive_directory_iterator(source))
    if (entry.path().filename() == "mp_rank_00_model_states.pt") good = bytes_of(entry.path().string());
  ASSERT_FALSE(good.empty());
  const auto read = [](const std::string& bytes) {
    const TorchArchive archive = TorchArchive::read(as_bytes(bytes), "a.pt");
    const auto module = archive.root().find("module");
    for (std::size_t i = 0; module && i + 1 < module->size(); i += 2) archive.tensor((*module)[i + 1]);
  };
  read(good);
  for (std::size_t size = 0; size < good.size(); size += 1 + good.size() / 100)
    EXPECT_THROW(read(good.substr(0, size)), Error) << size;
  std::uint32_t state = 7;
  for (int round = 0; round < 200; ++round) {
    std::string bad = good;
    state = state * 1664525 + 1013904223;
    bad[state % bad.size()] ^= static_cast<char>(1 << (state >> 29));
    try {
      read(bad);
    } catch (const Error&) {
    }
  }
  // A pickle by itself, where no checksum stands before the damage.
  const std::string metadata = bytes_of(kCheckpoints + "dcp/fsdp2-w2-fp32/ckpt/.metadata");
  for (int round = 0; round < 2000; ++round) {
    std::string bad = metadata;
    state = state * 1664525 + 1013904223;
    bad[(state >> 4) % bad.size()] = static_cast<char>(state >> 24);
    if (round % 5 == 0) bad.resize(state % bad.size());
    try {
      Pickle::read(as_bytes(bad), "m");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace intarsia::formats
