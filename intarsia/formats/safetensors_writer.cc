#include "intarsia/formats/safetensors_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/safetensors_header.h"
#include "intarsia/io/write_back.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::ordered_json;

// So much is appended before the disk is asked to begin with it.
constexpr std::uint64_t kWriteBackBytes = 8 << 20;

void check_decl(const TensorDecl& tensor) {
  INTARSIA_CHECK(kUnsupported, tensor.name.size() <= kMaxNameBytes && tensor.name != "__metadata__",
                 "a safetensors file cannot hold a tensor called \"", printable(tensor.name), "\"");
  INTARSIA_CHECK(kUnsupported, tensor.shape.size() <= kMaxDims, "tensor \"", printable(tensor.name), "\" has ",
                 tensor.shape.size(), " dimensions; a safetensors file may have ", kMaxDims);
}

std::uint64_t bytes_of(const TensorDecl& tensor) {
  auto bytes = static_cast<std::int64_t>(dtype_size(tensor.dtype));
  for (const std::int64_t dim : tensor.shape)
    INTARSIA_INVARIANT(dim >= 0 && !__builtin_mul_overflow(bytes, dim, &bytes), "shape of \"", printable(tensor.name),
                       "\": ", shape_text(tensor.shape));
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace

std::size_t SafetensorsLayout::index_of(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &TensorInfo::name);
  INTARSIA_INVARIANT(found != tensors.end(), "no tensor \"", printable(name), "\" was declared");
  return static_cast<std::size_t>(found - tensors.begin());
}

SafetensorsLayout layout_safetensors(std::vector<TensorDecl> tensors, std::map<std::string, std::string> metadata) {
  // Only the first data byte is aligned (to 8), so larger elements first keep all tensors aligned.
  std::ranges::sort(tensors, [](const TensorDecl& a, const TensorDecl& b) {
    return std::forward_as_tuple(dtype_size(b.dtype), a.name) < std::forward_as_tuple(dtype_size(a.dtype), b.name);
  });
  metadata.emplace("format", "pt");
  // Put together as text: an ordered JSON object looks its names up one by one.
  std::string text = concat("{\"__metadata__\":", Json(metadata).dump());
  std::unordered_set<std::string> names;
  SafetensorsLayout layout;
  std::uint64_t position = 0;
  for (TensorDecl& tensor : tensors) {
    check_decl(tensor);
    const std::uint64_t begin = position;
    INTARSIA_INVARIANT(!__builtin_add_overflow(position, bytes_of(tensor), &position) && position >> 63 == 0,
                       "the tensors have more bytes than a file can");
    INTARSIA_CHECK(kUnsupported, names.insert(tensor.name).second, "two tensors are called \"", printable(tensor.name),
                   "\"");
    const Json entry{
        {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, position}}};
    text += "," + Json(tensor.name).dump() + ":" + entry.dump();
    layout.tensors.push_back({.name = std::move(tensor.name),
                              .dtype = tensor.dtype,
                              .shape = std::move(tensor.shape),
                              .begin = begin,
                              .end = position});
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  INTARSIA_CHECK(kUnsupported, text.size() <= kMaxHeaderBytes, "a safetensors header of ", text.size(),
                 " bytes; the limit is ", kMaxHeaderBytes, ": write several files");
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<std::uint64_t>(text.size()));
  layout.head = std::string(length.data(), length.size()) + text;
  layout.file_bytes = layout.head.size() + position;
  return layout;
}

SafetensorsWriter::SafetensorsWriter(std::string path, SafetensorsLayout layout, io::Fd fd, bool creator)
    : path_(std::move(path)),
      partial_(path_ + ".partial"),
      layout_(std::move(layout)),
      fd_(std::move(fd)),
      creator_(creator) {}

SafetensorsWriter SafetensorsWriter::create(const std::string& path, SafetensorsLayout layout) {
  const std::string partial = path + ".partial";
  if (::unlink(partial.c_str()) != 0 && errno != ENOENT) io::fail_io("remove", partial, errno);
  SafetensorsWriter writer(path, std::move(layout), io::create_exclusive(partial), true);
  io::preallocate(writer.fd_, partial, writer.layout_.file_bytes);
  io::write_all_at(writer.fd_, partial, 0, io::as_bytes(writer.layout_.head));
  return writer;
}

SafetensorsWriter SafetensorsWriter::join(const std::string& path, SafetensorsLayout layout) {
  const std::string partial = path + ".partial";
  SafetensorsWriter writer(path, std::move(layout), io::open_write_existing(partial), false);
  const std::uint64_t size = io::file_size(writer.fd_, partial);
  INTARSIA_CHECK(kFormat, size == writer.layout_.file_bytes, printable(partial), " has ", size, " bytes, not ",
                 writer.layout_.file_bytes, ": it is not the file that this run began");
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (creator_ && fd_.is_open()) ::unlink(partial_.c_str());
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  const std::uint64_t data_bytes = layout_.file_bytes - layout_.data_begin();
  INTARSIA_INVARIANT(bytes.size() <= data_bytes - appended_, partial_, ": ", bytes.size(), " bytes appended, ",
                     data_bytes - appended_, " are left");
  io::write_all_at(fd_, partial_, layout_.data_begin() + appended_, bytes);
  appended_ += bytes.size();
  const std::uint64_t end = layout_.data_begin() + appended_;
  if (end - written_back_ < kWriteBackBytes) return;
  io::start_write_back(fd_, written_back_, end);
  written_back_ = end;
}

void SafetensorsWriter::write_at(std::size_t index, std::uint64_t offset, std::span<const std::byte> bytes) {
  INTARSIA_INVARIANT(index < layout_.tensors.size(), partial_, ": no tensor number ", index);
  const TensorInfo& tensor = layout_.tensors[index];
  INTARSIA_INVARIANT(offset <= tensor.num_bytes() && bytes.size() <= tensor.num_bytes() - offset, partial_, ": bytes ",
                     offset, " + ", bytes.size(), " lie outside \"", printable(tensor.name), "\"");
  io::write_all_at(fd_, partial_, layout_.data_begin() + tensor.begin + offset, bytes);
}

void SafetensorsWriter::flush() { io::fsync_file(fd_, partial_); }

void SafetensorsWriter::finish() {
  INTARSIA_INVARIANT(creator_ && fd_.is_open(), path_, ": finish() belongs to the creator, once");
  INTARSIA_INVARIANT(appended_ == 0 || layout_.data_begin() + appended_ == layout_.file_bytes, path_, ": only ",
                     appended_, " data bytes were appended");
  flush();
  io::rename_path(partial_, path_);
  fd_ = io::Fd();
  io::fsync_directory(io::parent_directory(path_));
}

}  // namespace intarsia::formats
