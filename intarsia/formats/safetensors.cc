#include "intarsia/formats/safetensors.h"

#include <array>
#include <bit>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/safetensors_header.h"

namespace intarsia::formats {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian and are not swapped");

std::int64_t TensorInfo::numel() const { return static_cast<std::int64_t>(num_bytes() / dtype_size(dtype)); }

std::string shape_text(std::span<const std::int64_t> shape) {
  std::vector<std::string> parts;
  for (const std::int64_t size : shape) parts.push_back(std::to_string(size));
  return concat("[", join(parts), "]");
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  io::Fd fd = io::open_read(path);
  const std::uint64_t size = io::file_size(fd, path);
  INTARSIA_CHECK(kFormat, size >= 8, printable(path), ": ", size,
                 " bytes are too few for a safetensors file, whose first 8 tell the length of its header");
  std::array<std::byte, 8> first{};
  io::read_exact_at(fd, path, 0, first);
  const auto header_bytes = std::bit_cast<std::uint64_t>(first);
  INTARSIA_CHECK(kFormat, header_bytes <= kMaxHeaderBytes, printable(path), ": the header's length ", header_bytes,
                 " is above the limit of ", kMaxHeaderBytes, " bytes; is this a safetensors file?");
  INTARSIA_CHECK(kFormat, header_bytes <= size - 8, printable(path), ": the header's length ", header_bytes,
                 " runs past the end of the file of ", size, " bytes: ", header_bytes - (size - 8), " bytes missing");
  std::string text(header_bytes, '\0');
  io::read_exact_at(fd, path, 8, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader header = parse_safetensors_header(path, text, size - 8 - header_bytes);

  SafetensorsFile file(io::MappedFile::map(std::move(fd), path));
  INTARSIA_CHECK(kIo, file.file_.size() == size, printable(path), " changed while it was read: it had ", size,
                 " bytes and has ", file.file_.size(), " now");
  file.data_begin_ = 8 + header_bytes;
  file.tensors_ = std::move(header.tensors);
  file.metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) file.index_.emplace(file.tensors_[i].name, i);
  return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  INTARSIA_CHECK(kFormat, tensor != nullptr, printable(path()), " has no tensor \"", printable(name), "\"");
  return *tensor;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return file_.view(data_begin_ + tensor.begin, tensor.num_bytes());
}

}  // namespace intarsia::formats
