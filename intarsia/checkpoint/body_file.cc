#include "intarsia/checkpoint/body_file.h"

#include <ATen/ATen.h>

#include <array>
#include <bit>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::checkpoint {

// The header comes from the checked reader. The data are read and not mapped: a mapping of a file that is cut off
// meanwhile kills the process, and its pages would count as this process's memory.
BodyFile::BodyFile(const std::string& path) : header_(formats::SafetensorsFile::open(path)), fd_(io::open_read(path)) {
  std::array<std::byte, 8> length{};
  io::read_exact_at(fd_, path, 0, length);
  data_begin_ = length.size() + std::bit_cast<std::uint64_t>(length);
}

std::uint64_t BodyFile::locate(const StoredTensor& tensor, const StoredPiece& piece) const {
  const formats::TensorInfo* const info = header_.find(tensor.stored_name());
  INTARSIA_CHECK(kFormat, info != nullptr, printable(header_.path()), " lacks \"", printable(tensor.stored_name()),
                 "\", of which the manifest says it has elements ", piece.elements.begin, " to ", piece.elements.end);
  const std::vector<std::int64_t> shape{piece.elements.size()};
  INTARSIA_CHECK(kFormat, info->dtype == tensor.dtype && info->shape == shape, printable(header_.path()), ": \"",
                 printable(tensor.stored_name()), "\" is ", short_name(info->dtype), " ",
                 formats::shape_text(info->shape), ", the manifest says ", short_name(tensor.dtype), " ",
                 formats::shape_text(shape));
  return data_begin_ + info->begin;
}

void BodyFile::read(std::uint64_t at, DType dtype, const at::Tensor& out) const {
  const at::ScalarType stored = tensor::scalar_type(dtype);
  const bool straight = out.is_cpu() && out.scalar_type() == stored;
  const at::Tensor buffer = straight ? out : at::empty(out.sizes(), at::TensorOptions().dtype(stored));
  io::read_exact_at(fd_, header_.path(), at, {static_cast<std::byte*>(buffer.mutable_data_ptr()), buffer.nbytes()});
  if (!straight) out.copy_(buffer);
}

}  // namespace intarsia::checkpoint
