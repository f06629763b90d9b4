// Reader of safetensors files. Files are untrusted: nothing is mapped or allocated before the header agrees with the
// file's size; docs/formats/safetensors.md lists what is accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

// An open file. Invariant: the tensors tile the data without overlap or hole, each has exactly the bytes that its shape
// and dtype need, and the data end with the file.
// Lifetime: references and views end with the object. Threads: const members may be called at once.
class SafetensorsFile {
 public:
  // Memory: the header (at most 100 MB and never more than the file) while it is read, then the list of tensors.
  // Errors: kIo; kFormat with the file, the tensor and the cause.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

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

 private:
  explicit SafetensorsFile(io::MappedFile file) : file_(std::move(file)) {}

  io::MappedFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys point into tensors_
};

// Writes elements [begin, end) of the tensor as fp32 to `out`. F32, BF16 and F16 are exact, F64 is rounded to nearest.
// Errors: kFormat for other dtypes or a range outside the tensor; kIo when the file's size changed.
void read_as_f32(const SafetensorsFile& file, const TensorInfo& tensor, std::int64_t begin, std::int64_t end,
                 float* out);

}  // namespace intarsia::formats
