#include "intarsia/formats/pickle/torch_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "intarsia/formats/pickle/pickle_writer.h"
#include "intarsia/formats/pickle/torch_file.h"
#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

TEST(PickleWriter, WritesWhatTheReaderReads) {
  PickleWriter out;
  out.dict([&] {
    out.text("numbers");
    out.list([&] {
      for (const std::int64_t value : {std::int64_t{0}, std::int64_t{255}, std::int64_t{256}, std::int64_t{-1},
                                       std::int64_t{1} << 31, std::numeric_limits<std::int64_t>::min()})
        out.integer(value);
      out.number(-2.5e-300);
    });
    out.text("rest");
    out.tuple([&] {
      out.none();
      out.boolean(true);
      out.text("\xC3\xA9");
      out.dict([] {});
      out.list([] {});
      out.integers({});
    });
    out.text("object");
    out.object("torch.distributed.checkpoint.metadata", "BytesStorageMetadata", [&] { out.dict([] {}); });
    out.text("size");
    out.call("torch", "Size", [&] { out.integers({3, 300}); });
  });
  const std::string text = out.take();
  const Pickle pickle = Pickle::read(io::as_bytes(text), "p");
  const PickleValue root = pickle.root();
  const PickleValue numbers = *root.find("numbers");
  ASSERT_EQ(numbers.size(), 7u);
  EXPECT_EQ(numbers[1].integer(), 255);
  EXPECT_EQ(numbers[2].integer(), 256);
  EXPECT_EQ(numbers[3].integer(), -1);
  EXPECT_EQ(numbers[4].integer(), std::int64_t{1} << 31);
  EXPECT_EQ(numbers[5].integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(numbers[6].number(), -2.5e-300);
  const PickleValue rest = *root.find("rest");
  ASSERT_EQ(rest.size(), 6u);
  EXPECT_EQ(rest[0].kind(), PickleKind::kNone);
  EXPECT_EQ(rest[1].integer(), 1);
  EXPECT_EQ(rest[2].text(), "\xC3\xA9");
  EXPECT_EQ(rest[5].kind(), PickleKind::kTuple);
  EXPECT_EQ(root.find("object")->class_name(), "torch.distributed.checkpoint.metadata.BytesStorageMetadata");
  EXPECT_EQ(root.find("size")->arguments()[0][1].integer(), 300);
}

class TorchWriter : public TestFolder {};

TEST_F(TorchWriter, SeveralArchivesInOneFileAreReadWithTheirChecksums) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const io::Fd fd = io::create_exclusive(path("body"));
  std::vector<std::uint64_t> ends = {0};
  for (int i = 0; i < 3; ++i) {
    PickleWriter out;
    put_tensor(out, "0", DType::kF32, {2, 3});
    TorchArchiveWriter archive(fd, path("body"), ends.back(), out.take());
    archive.storage("0", values.size() * sizeof(float));
    archive.append(std::as_bytes(std::span(values)).first(5));  // parts need not be whole elements
    archive.append(std::as_bytes(std::span(values)).subspan(5));
    ends.push_back(archive.finish());
  }
  const io::MappedFile map = io::MappedFile::open(path("body"));
  EXPECT_EQ(map.size(), ends.back());
  for (int i = 0; i < 3; ++i) {
    const auto archive = TorchArchive::read(map.view(ends[i], ends[i + 1] - ends[i]), "body");
    const auto tensor = archive.tensor(archive.root());
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(tensor->begin % 64, 0u) << "a storage begins where torch can map it";
    EXPECT_EQ(std::memcmp(archive.bytes(*tensor).data(), values.data(), values.size() * sizeof(float)), 0);
  }
}

TEST_F(TorchWriter, AStorageThatIsNotWholeIsNoArchive) {
  const io::Fd fd = io::create_exclusive(path("body"));
  PickleWriter out;
  put_tensor(out, "0", DType::kF32, {2});
  TorchArchiveWriter archive(fd, path("body"), 0, out.take());
  archive.storage("0", 8);
  error_of(ErrorKind::kInternal, [&] { archive.finish(); });
  const std::vector<std::byte> more(9);
  error_of(ErrorKind::kInternal, [&] { archive.append(more); });
}

}  // namespace
}  // namespace intarsia::formats
