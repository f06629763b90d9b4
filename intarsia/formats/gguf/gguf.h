// Reader of GGUF files (llama.cpp's format). Files are untrusted: every count and offset is held against the file's
// size before anything is taken.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {

// How elements are stored; the numbers are the file's.
enum class GgufType : std::uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ6_K = 14, kBF16 = 30 };

// Elements that are stored together, and their bytes.
struct GgufBlock {
  std::int64_t numel = 1;
  std::uint64_t bytes = 4;
};
GgufBlock block_of(GgufType type);
std::string_view name(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<std::int64_t> shape;  // row-major, as everywhere here; the file has it reversed
  std::uint64_t begin = 0;          // byte in the file

  std::int64_t numel() const;
  // Elements of the last dimension: the rows that reading counts by.
  std::int64_t row_numel() const { return shape.empty() ? 1 : shape.back(); }
  std::int64_t num_rows() const { return numel() / (row_numel() > 0 ? row_numel() : 1); }
};

// A value of the file's key-value part. Texts are views into the file.
using GgufValue = std::variant<std::int64_t, double, bool, std::string_view, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string_view>>;

// Lifetime: views end with the object (moving it keeps them). Threads: const members may be called at once.
class GgufFile {
 public:
  // Memory: at most about twice the header's bytes. Errors: kIo; kFormat with the file and the cause; kUnsupported with
  // the name of a tensor's type that is not known, or of a version.
  // Source: GGUF specification, versions 2 and 3.
  static GgufFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::map<std::string_view, GgufValue>& values() const { return values_; }

  // nullptr when there is no such tensor.
  const GgufTensor* find(std::string_view name) const;
  // The value of a key; nothing when it is missing. Errors: kFormat for a value of another type.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const std::vector<std::string_view>* texts(std::string_view key) const;
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;

  // Writes row `row` of a tensor of this file as fp32 to `out`, row_numel() elements. Quantised ones by llama.cpp's
  // formulas, in fp32: exact for what the format means.
  void read_row(const GgufTensor& tensor, std::int64_t row, float* out) const;

 private:
  explicit GgufFile(io::MappedFile file) : file_(std::move(file)) {}
  template <typename T>
  const T* value(std::string_view key, const char* expected) const;

  io::MappedFile file_;
  std::map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
};

// Writes `numel` elements, whole blocks, as fp32. `bytes` may be unaligned.
void dequantise(GgufType type, const std::byte* bytes, std::int64_t numel, float* out);

}  // namespace intarsia::formats
