// Named tensors in a mapped file, whatever its format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar; elements in row-major order
  std::uint64_t begin = 0;          // bytes [begin, end), counted from the first data byte
  std::uint64_t end = 0;

  std::int64_t numel() const;
  std::uint64_t num_bytes() const { return end - begin; }
};

// "[2, 3]"; "[]" for a scalar.
std::string shape_text(std::span<const std::int64_t> shape);

// An open file. Invariant: each tensor has exactly the bytes that its shape and dtype need, inside the file; no name
// comes twice. Lifetime: references and views end with the object (moving it keeps them). Threads: const members may be
// called at once.
class TensorFile {
 public:
  const std::string& path() const { return file_.path(); }
  std::uint64_t num_bytes() const { return file_.size(); }
  // Byte of the file that TensorInfo counts from.
  std::uint64_t data_begin() const { return data_begin_; }
  // In the order of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // Nothing when there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
  // Errors: kFormat when there is no such tensor.
  const TensorInfo& at(std::string_view name) const;

  // The tensor's bytes, in the mapped file; they are aligned for their dtype only when the writer cared.
  // Errors: kFormat when there is no such tensor.
  std::span<const std::byte> bytes(std::string_view name) const { return bytes(at(name)); }
  // `tensor` must come from this file.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

  // Errors: kIo when the file's size changed since it was opened.
  void check_unchanged() const { file_.check_unchanged(); }

  // The reader of a format has checked `tensors` against the file's size; they count from `data_begin`.
  TensorFile(io::MappedFile file, std::uint64_t data_begin, std::vector<TensorInfo> tensors);

 private:
  io::MappedFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys point into tensors_
};

// Writes elements [begin, end) of the tensor as fp32 to `out`. F32, BF16 and F16 are exact, F64 is rounded to nearest.
// Errors: kFormat for other dtypes or a range outside the tensor; kIo when the file's size changed.
void read_as_f32(const TensorFile& file, const TensorInfo& tensor, std::int64_t begin, std::int64_t end, float* out);

}  // namespace intarsia::formats
