#include "intarsia/formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include "intarsia/base/error.h"
#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

class SafetensorsWriterTest : public TestFolder {};

std::span<const std::byte> floats(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

TEST_F(SafetensorsWriterTest, WritesTheSameBytesAsTheReferenceLibrary) {
  const std::string original = "tests/fixtures/hf/llama-gqa/model/model.safetensors";
  const auto file = SafetensorsFile::open(original);
  std::vector<TensorDecl> decls;
  for (auto tensor = file.tensors().rbegin(); tensor != file.tensors().rend(); ++tensor)
    decls.push_back({tensor->name, tensor->dtype, tensor->shape});
  auto writer = SafetensorsWriter::create(path("m.safetensors"), layout_safetensors(decls));
  for (const TensorInfo& tensor : writer.layout().tensors) writer.append(file.bytes(tensor.name));
  writer.finish();
  EXPECT_EQ(io::read_text_file(path("m.safetensors"), 1 << 20), io::read_text_file(original, 1 << 20));
}

TEST_F(SafetensorsWriterTest, OrdersByElementSizeThenNameAndAlignsTheData) {
  const auto layout = layout_safetensors({{"c", DType::kU8, {3}},
                                          {"b", DType::kF32, {2}},
                                          {"a", DType::kBF16, {5}},
                                          {"d", DType::kF64, {}},
                                          {"aa", DType::kF32, {0, 7}}},
                                         {{"step", "3"}});
  std::string order;
  for (const TensorInfo& tensor : layout.tensors) order += tensor.name + " ";
  EXPECT_EQ(order, "d aa b a c ");
  EXPECT_EQ(layout.data_begin() % 8, 0U);
  EXPECT_EQ(layout.file_bytes, layout.data_begin() + 8 + 8 + 10 + 3);
}

// Long enough that the disk is asked to begin several times, in parts that do not divide what it is asked for.
TEST_F(SafetensorsWriterTest, LongFilesHoldWhatWasAppended) {
  std::vector<float> values(6'000'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto count = static_cast<std::int64_t>(values.size());
  auto writer = SafetensorsWriter::create(path("m.safetensors"), layout_safetensors({{"w", DType::kF32, {count}}}));
  for (auto rest = floats(values); !rest.empty();) {
    const auto part = rest.first(std::min<std::size_t>(rest.size(), 3'000'001));
    writer.append(part);
    rest = rest.subspan(part.size());
  }
  writer.finish();
  std::vector<float> found(values.size());
  const auto file = SafetensorsFile::open(path("m.safetensors"));
  read_as_f32(file, file.at("w"), 0, count, found.data());
  EXPECT_EQ(found, values);
}

TEST_F(SafetensorsWriterTest, PiecesOfTwoWritersMakeOneFile) {
  const auto layout = layout_safetensors({{"w", DType::kF32, {4}}, {"v", DType::kF32, {1}}}, {{"step", "3"}});
  auto creator = SafetensorsWriter::create(path("m.safetensors"), layout);
  auto other = SafetensorsWriter::join(path("m.safetensors"), layout);
  other.write_at(layout.index_of("w"), 8, floats({3, 4}));
  other.flush();
  creator.write_at(layout.index_of("w"), 0, floats({1, 2}));
  creator.write_at(layout.index_of("v"), 0, floats({5}));
  EXPECT_FALSE(std::filesystem::exists(path("m.safetensors")));
  creator.finish();
  const auto file = SafetensorsFile::open(path("m.safetensors"));
  std::vector<float> values(4);
  read_as_f32(file, file.at("w"), 0, 4, values.data());
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(file.metadata().at("step"), "3");
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(SafetensorsWriterTest, AnUnfinishedFileDisappears) {
  {
    auto writer = SafetensorsWriter::create(path("m.safetensors"), layout_safetensors({{"w", DType::kF32, {1}}}));
    EXPECT_TRUE(std::filesystem::exists(path("m.safetensors.partial")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SafetensorsWriterTest, RefusesBytesThatDoNotFit) {
  auto writer = SafetensorsWriter::create(path("m.safetensors"), layout_safetensors({{"w", DType::kF32, {2}}}));
  error_of(ErrorKind::kInternal, [&] { writer.write_at(0, 4, floats({1, 2})); });
  writer.append(floats({1}));
  error_of(ErrorKind::kInternal, [&] { writer.finish(); });
  error_of(ErrorKind::kInternal, [&] { writer.append(floats({1, 2})); });
}

TEST_F(SafetensorsWriterTest, RefusesTwoTensorsOfOneName) {
  error_of(ErrorKind::kUnsupported, [] { layout_safetensors({{"w", DType::kF32, {1}}, {"w", DType::kF32, {1}}}); });
}

}  // namespace
}  // namespace intarsia::formats
