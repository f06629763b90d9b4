#include "intarsia/formats/model_directory.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/formats/account_tensors.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/formats/test_folder.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

const std::string kHf = "tests/fixtures/hf/";
const std::string kMalformed = "tests/fixtures/checkpoints/malformed/";

class ModelDirectoryTest : public TestFolder {
 protected:
  // Writes a file of F32 vectors [2], each element `value`.
  void write_file(const std::string& name, const std::vector<std::string>& tensors, float value = 1) const {
    std::vector<TensorDecl> decls;
    for (const std::string& tensor : tensors) decls.push_back({tensor, DType::kF32, {2}});
    auto writer = SafetensorsWriter::create(path(name), layout_safetensors(decls));
    const std::vector<float> values(2, value);
    for (std::size_t i = 0; i < tensors.size(); ++i) writer.append(std::as_bytes(std::span(values)));
    writer.finish();
  }
  void write_index(const nlohmann::json& weight_map) const {
    io::write_file_atomic(path("model.safetensors.index.json"),
                          nlohmann::json{{"metadata", {{"total_size", 8}}}, {"weight_map", weight_map}}.dump());
  }
  std::string refusal(ErrorKind kind) const {
    return error_of(kind, [&] { ModelDirectory::open(folder_); });
  }
};

void expect_contains(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(ModelDirectoryTest, OpensAnIndexWithItsShards) {
  const ModelDirectory model = ModelDirectory::open(kHf + "mistral-full/model");
  EXPECT_EQ(model.files().size(), 3U);
  EXPECT_EQ(model.num_tensors(), 21U);
  std::int64_t numel = 0;
  for (const TensorFile& file : model.files())
    for (const TensorInfo& tensor : file.tensors()) {
      const LocatedTensor found = model.find(tensor.name);
      EXPECT_EQ(found.tensor, &tensor);
      EXPECT_EQ(found.file, &file);
      numel += tensor.numel();
    }
  EXPECT_EQ(numel, 42784);
  EXPECT_EQ(model.find("model.layers.9.mlp.up_proj.weight").tensor, nullptr);
}

TEST_F(ModelDirectoryTest, OpensASingleFile) {
  const ModelDirectory model = ModelDirectory::open(kHf + "llama-tied/model");
  EXPECT_EQ(model.files().size(), 1U);
  EXPECT_NE(model.find("model.embed_tokens.weight").tensor, nullptr);
}

TEST_F(ModelDirectoryTest, RefusesTheMalformedIndexes) {
  expect_contains(format_error([] { ModelDirectory::open(kMalformed + "index-dotdot"); }),
                  {"model.safetensors.index.json", "leaves the folder", "../../escape.safetensors"});
  expect_contains(format_error([] { ModelDirectory::open(kMalformed + "index-absolute"); }),
                  {"model.safetensors.index.json", "absolute path", "/etc/hostname"});
  expect_contains(error_of(ErrorKind::kIo, [] { ModelDirectory::open(kMalformed + "index-missing-shard"); }),
                  {"model.safetensors.index.json", "model-00001-of-00002.safetensors"});
}

TEST_F(ModelDirectoryTest, RefusesNamesAndLinksThatLeaveTheFolder) {
  fs::create_directories(path("outside"));
  write_file("outside/a.safetensors", {"w"});
  fs::create_directories(path("model/sub"));
  folder_ = path("model");
  fs::create_symlink("../outside/a.safetensors", path("link.safetensors"));
  fs::create_symlink("../../outside", path("sub/up"));
  for (const char* name : {"../outside/a.safetensors", "sub/../../outside/a.safetensors", "link.safetensors",
                           "sub/up/a.safetensors", ".", ""}) {
    write_index({{"w", name}});
    expect_contains(refusal(ErrorKind::kFormat), {"index.json", "\"w\" is said to be in"});
  }
  write_file("sub/b.safetensors", {"w"});
  fs::create_symlink("sub/b.safetensors", path("inside.safetensors"));
  write_index({{"w", "inside.safetensors"}});
  EXPECT_EQ(ModelDirectory::open(folder_).num_tensors(), 1U);
  folder_ = fs::path(folder_).parent_path();
}

TEST_F(ModelDirectoryTest, FollowsTheLinksOfAHuggingFaceCache) {
  const std::string root = folder_;
  fs::create_directories(path("models--a--b/blobs"));
  fs::create_directories(path("models--a--b/snapshots/123"));
  write_file("models--a--b/blobs/0f", {"w"});
  folder_ = path("models--a--b/snapshots/123");
  fs::create_symlink("../../blobs/0f", path("m1.safetensors"));
  write_index({{"w", "m1.safetensors"}});
  EXPECT_EQ(ModelDirectory::open(folder_).num_tensors(), 1U);
  folder_ = root;
}

TEST_F(ModelDirectoryTest, ListsEveryDisagreementOfIndexAndShards) {
  write_file("a.safetensors", {"both", "extra", "moved", "right"});
  write_file("b.safetensors", {"both", "other"});
  write_index({{"both", "a.safetensors"},
               {"gone", "a.safetensors"},
               {"moved", "b.safetensors"},
               {"right", "a.safetensors"},
               {"other", "b.safetensors"}});
  const std::string message = refusal(ErrorKind::kFormat);
  expect_contains(message,
                  {"\"both\" is in two files", "\"extra\" is in a.safetensors but not in the index",
                   "\"gone\" is not in a.safetensors", "\"moved\" is in a.safetensors, the index says b.safetensors"});
  EXPECT_EQ(message.find("\"right\""), std::string::npos) << message;
}

TEST_F(ModelDirectoryTest, RefusesABrokenIndex) {
  write_index("text");
  expect_contains(refusal(ErrorKind::kFormat), {"weight_map"});
  write_index({{"w", 3}});
  expect_contains(refusal(ErrorKind::kFormat), {"\"w\"", "text"});
  io::write_file_atomic(path("model.safetensors.index.json"), R"({"weight_map":{"w":"a","w":"b"}})");
  expect_contains(refusal(ErrorKind::kFormat), {"\"w\" stands twice"});
}

TEST_F(ModelDirectoryTest, SaysWhatToDoWithOtherFolders) {
  expect_contains(refusal(ErrorKind::kIo), {"has no weights"});
  io::write_file_atomic(path("a.gguf"), "x");
  expect_contains(refusal(ErrorKind::kUnsupported), {"a.gguf", "intarsia convert"});
  fs::remove(path("a.gguf"));
  io::write_file_atomic(path("model.h5"), "x");
  expect_contains(refusal(ErrorKind::kUnsupported), {"model.h5", "save_pretrained"});
  io::write_file_atomic(path("pytorch_model.bin"), "x");
  expect_contains(refusal(ErrorKind::kFormat), {"pytorch_model.bin", "no zip archive"});
  folder_ += "/pytorch_model.bin";
  expect_contains(refusal(ErrorKind::kIo), {"is not a folder"});
  folder_ = fs::path(folder_).parent_path();
}

TEST_F(ModelDirectoryTest, AccountNamesEveryMissingExtraAndMisShapedTensor) {
  write_file("model.safetensors", {"a", "b", "c", "layers.0.rotary_emb.inv_freq"});
  const ModelDirectory model = ModelDirectory::open(folder_);
  const std::string message = format_error([&] {
    account_tensors(model, {{"a", {2}, {}}, {"b", {2, 1}, {}}, {"d", {4, 5}, {}}});
  });
  expect_contains(message, {"\"b\" has shape [2], config.json asks for [2, 1]", "\"c\" [2] belongs to no parameter",
                            "\"d\" [4, 5] is missing"});
  EXPECT_EQ(message.find("\"a\""), std::string::npos) << message;
  EXPECT_EQ(message.find("inv_freq"), std::string::npos) << message;
}

TEST_F(ModelDirectoryTest, AccountAcceptsATiedCopyOnlyWhenItIsEqual) {
  const std::vector<ExpectedTensor> expected{{"embed", {2}, {"head"}}};
  write_file("model.safetensors", {"embed", "head"}, 3);
  {
    const ModelDirectory model = ModelDirectory::open(folder_);
    EXPECT_EQ(account_tensors(model, expected).at(0).tensor->name, "embed");
  }
  fs::remove(path("model.safetensors"));
  write_file("a.safetensors", {"embed"}, 3);
  write_file("b.safetensors", {"head"}, 4);
  write_index({{"embed", "a.safetensors"}, {"head", "b.safetensors"}});
  {
    const ModelDirectory model = ModelDirectory::open(folder_);
    expect_contains(format_error([&] { account_tensors(model, expected); }),
                    {"\"head\" is tied to \"embed\" but has other values"});
  }
  write_index({{"head", "b.safetensors"}});
  const ModelDirectory model = ModelDirectory::open(folder_);
  EXPECT_EQ(account_tensors(model, expected).at(0).tensor->name, "head");
}

TEST_F(ModelDirectoryTest, AccountRefusesIntegerWeights) {
  auto writer = SafetensorsWriter::create(path("model.safetensors"), layout_safetensors({{"a", DType::kI64, {0}}}));
  writer.finish();
  const ModelDirectory model = ModelDirectory::open(folder_);
  expect_contains(format_error([&] { account_tensors(model, {{"a", {0}, {}}}); }), {"dtype I64"});
}

}  // namespace
}  // namespace intarsia::formats
