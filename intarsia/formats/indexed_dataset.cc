#include "intarsia/formats/indexed_dataset.h"

#include <array>
#include <cstring>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kHeaderBytes = 34;

// Values in the mapped index; nothing in it is aligned.
class Index {
 public:
  explicit Index(const std::string& path) : file_(io::MappedFile::open(path)) {
    INTARSIA_CHECK(kFormat, file_.size() >= kHeaderBytes, path, ": ", file_.size(),
                   " bytes, the header of an index alone has ", kHeaderBytes);
  }
  template <typename T>
  T at(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, file_.view(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }
  bool has_magic() const { return std::memcmp(file_.bytes().data(), kMagic.data(), kMagic.size()) == 0; }
  std::uint64_t size() const { return file_.size(); }

 private:
  io::MappedFile file_;
};

DType dtype_of(std::uint8_t code, const std::string& path) {
  constexpr std::array kTypes = {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64};
  INTARSIA_CHECK(kUnsupported, code != 6 && code != 7, path, ": dtype code ", int{code},
                 ", floats; tokens are integers");
  INTARSIA_CHECK(kFormat, (code >= 1 && code <= 5) || code == 8, path, ": dtype code ", int{code},
                 "; known are 1 (u8), 2 (i8), 3 (i16), 4 (i32), 5 (i64) and 8 (u16)");
  return code == 8 ? DType::kU16 : kTypes[code - 1u];
}

}  // namespace

IndexedDataset read_indexed_dataset(const std::string& index_path, std::uint64_t token_bytes) {
  const Index index(index_path);
  INTARSIA_CHECK(kFormat, index.has_magic(), index_path,
                 ": does not begin with MMIDIDX; this is no index of a Megatron dataset");
  const auto version = index.at<std::uint64_t>(9);
  INTARSIA_CHECK(kFormat, version == 1, index_path, ": version ", version, ", known is 1");
  IndexedDataset out;
  out.dtype = dtype_of(index.at<std::uint8_t>(17), index_path);
  const auto sequences = index.at<std::uint64_t>(18), boundaries = index.at<std::uint64_t>(26);
  const std::uint64_t room = index.size() - kHeaderBytes;
  INTARSIA_CHECK(kFormat, sequences <= room / 12, index_path, ": ", sequences, " sequences need more than the ", room,
                 " bytes behind the header");
  const std::uint64_t behind = room - 12 * sequences;
  INTARSIA_CHECK(kFormat, boundaries >= 1 && boundaries <= behind / 8, index_path, ": ", boundaries,
                 " document boundaries, but ", behind, " bytes are left for them");
  const std::uint64_t rest = behind - 8 * boundaries;
  INTARSIA_CHECK(kFormat, rest == 0 || rest == sequences, index_path, ": ", rest,
                 " bytes behind the document boundaries; ", "allowed are none, or one a sequence");

  const std::uint64_t lengths = kHeaderBytes, pointers = lengths + 4 * sequences, ends = pointers + 8 * sequences;
  const std::uint64_t width = dtype_size(out.dtype);
  std::uint64_t document = 0;  // the boundary to come
  std::int64_t before = 0;
  const auto close_documents = [&](std::uint64_t sequence) {
    for (; document < boundaries; ++document) {
      const auto boundary = index.at<std::int64_t>(ends + 8 * document);
      INTARSIA_CHECK(kFormat, boundary >= before && (document > 0 || boundary == 0), index_path, ": document boundary ",
                     document, " is ", boundary, " behind ", before, "; they ascend from 0");
      INTARSIA_CHECK(kFormat, static_cast<std::uint64_t>(boundary) <= sequences, index_path, ": document boundary ",
                     document, " is ", boundary, ", but there are ", sequences, " sequences");
      if (static_cast<std::uint64_t>(boundary) > sequence) return;
      before = boundary;
      if (document > 0) out.document_ends.push_back(out.num_tokens);
    }
  };
  for (std::uint64_t i = 0; i < sequences; ++i) {
    close_documents(i);
    const auto length = index.at<std::int32_t>(lengths + 4 * i);
    const auto pointer = index.at<std::int64_t>(pointers + 8 * i);
    INTARSIA_CHECK(kFormat, length >= 0, index_path, ": sequence ", i, " has the length ", length);
    INTARSIA_CHECK(kFormat, pointer >= 0, index_path, ": sequence ", i, " begins at byte ", pointer);
    const std::uint64_t bytes = static_cast<std::uint64_t>(length) * width, begin = static_cast<std::uint64_t>(pointer);
    INTARSIA_CHECK(kFormat, begin <= token_bytes && bytes <= token_bytes - begin, index_path, ": sequence ", i,
                   " is bytes ", begin, " to ", begin + bytes, " of a .bin of ", token_bytes, " bytes");
    INTARSIA_CHECK(kUnsupported, begin == static_cast<std::uint64_t>(out.num_tokens) * width, index_path, ": sequence ",
                   i, " begins at byte ", begin, " and not where the one before ends; such datasets are not supported");
    out.num_tokens += length;
  }
  close_documents(sequences);
  INTARSIA_CHECK(kFormat, document == boundaries && before == static_cast<std::int64_t>(sequences), index_path,
                 ": the documents end at sequence ", before, " of ", sequences);
  INTARSIA_CHECK(kFormat, static_cast<std::uint64_t>(out.num_tokens) * width == token_bytes, index_path,
                 ": the sequences are ", static_cast<std::uint64_t>(out.num_tokens) * width, " bytes, the .bin has ",
                 token_bytes);
  return out;
}

}  // namespace intarsia::formats
