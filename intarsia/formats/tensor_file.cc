#include "intarsia/formats/tensor_file.h"

#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {

std::int64_t TensorInfo::numel() const { return static_cast<std::int64_t>(num_bytes() / dtype_size(dtype)); }

std::string shape_text(std::span<const std::int64_t> shape) {
  std::vector<std::string> parts;
  for (const std::int64_t size : shape) parts.push_back(std::to_string(size));
  return concat("[", join(parts), "]");
}

TensorFile::TensorFile(io::MappedFile file, std::uint64_t data_begin, std::vector<TensorInfo> tensors)
    : file_(std::move(file)), data_begin_(data_begin), tensors_(std::move(tensors)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorInfo* TensorFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& TensorFile::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  INTARSIA_CHECK(kFormat, tensor != nullptr, printable(path()), " has no tensor \"", printable(name), "\"");
  return *tensor;
}

std::span<const std::byte> TensorFile::bytes(const TensorInfo& tensor) const {
  return file_.view(data_begin_ + tensor.begin, tensor.num_bytes());
}

}  // namespace intarsia::formats
