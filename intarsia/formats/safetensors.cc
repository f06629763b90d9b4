#include "intarsia/formats/safetensors.h"

#include <array>
#include <bit>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/safetensors_header.h"

namespace intarsia::formats {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian and are not swapped");

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

  io::MappedFile file = io::MappedFile::map(std::move(fd), path);
  INTARSIA_CHECK(kIo, file.size() == size, printable(path), " changed while it was read: it had ", size,
                 " bytes and has ", file.size(), " now");
  return {TensorFile(std::move(file), 8 + header_bytes, std::move(header.tensors)), std::move(header.metadata)};
}

}  // namespace intarsia::formats
