#include "intarsia/formats/peers/logical_checkpoint.h"

#include <algorithm>
#include <array>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/pickle/zip_file.h"
#include "intarsia/io/file.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {
namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t out = 1;
  for (const std::int64_t size : sizes) out *= size;
  return out;
}

// An open file of the checkpoint, read piece by piece.
class PieceReader {
 public:
  explicit PieceReader(const CheckpointFile& file) : file_(file), fd_(io::open_read(file.path)) {
    const std::uint64_t bytes = io::file_size(fd_, file.path);
    INTARSIA_CHECK(kIo, bytes == file.bytes, printable(file.path), " changed while it was read: it had ", file.bytes,
                   " bytes and has ", bytes, " now");
  }

  void read(std::uint64_t at, DType dtype, std::int64_t count, float* out) const {
    if (dtype == DType::kF32) {
      io::read_exact_at(fd_, file_.path, at,
                        {reinterpret_cast<std::byte*>(out), static_cast<std::size_t>(count) * sizeof(float)});
      return;
    }
    const std::size_t size = dtype_size(dtype);
    std::vector<std::byte> buffer(std::min<std::size_t>(1 << 20, static_cast<std::size_t>(count) * size));
    const auto most = static_cast<std::int64_t>(buffer.size() / size);
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t now = std::min(most, count - done);
      const auto part = std::span(buffer).first(static_cast<std::size_t>(now) * size);
      io::read_exact_at(fd_, file_.path, at + static_cast<std::uint64_t>(done) * size, part);
      widen(part.data(), dtype, now, out + done);
      done += now;
    }
  }

 private:
  const CheckpointFile& file_;
  io::Fd fd_;
};

// Names as the model has them: wrappers put words before and between.
std::string plain_name(std::string name) {
  for (const std::string_view word : {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."})
    for (std::size_t at = name.find(word); at != name.npos; at = name.find(word)) name.erase(at, word.size());
  return name;
}

void make_names_plain(CheckpointContents& contents) {
  bool all_module = !contents.tensors.empty();
  for (const LogicalTensor& tensor : contents.tensors) all_module = all_module && tensor.name.starts_with("module.");
  const auto plain = [&](const std::string& name) {
    return plain_name(all_module && name.starts_with("module.") ? name.substr(7) : name);
  };
  for (LogicalTensor& tensor : contents.tensors) tensor.name = plain(tensor.name);
  for (ParameterGroup& group : contents.state.groups)
    for (std::string& name : group.names) name = plain(name);
  std::map<std::string, std::string> aliases;
  for (const auto& [other, name] : contents.aliases) aliases.emplace(plain(other), plain(name));
  contents.aliases = std::move(aliases);
}

}  // namespace

std::int64_t TensorPiece::numel() const { return product(sizes); }
std::int64_t LogicalTensor::numel() const { return product(shape); }

void for_each_run(const LogicalTensor& tensor, const TensorPiece& piece,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& use) {
  const std::int64_t numel = piece.numel();
  if (numel == 0) return;
  if (piece.sizes.size() != tensor.shape.size() || piece.sizes.size() <= 1) return use(piece.offsets[0], numel, 0);
  // Rows lie one after another as far as the dimensions behind are whole.
  std::size_t inner = piece.sizes.size() - 1;
  while (inner > 0 && piece.sizes[inner] == tensor.shape[inner]) --inner;
  std::vector<std::int64_t> strides(tensor.shape.size(), 1);
  for (std::size_t dim = tensor.shape.size() - 1; dim-- > 0;) strides[dim] = strides[dim + 1] * tensor.shape[dim + 1];
  std::int64_t begin = 0, length = 1;
  for (std::size_t dim = 0; dim < strides.size(); ++dim) begin += piece.offsets[dim] * strides[dim];
  for (std::size_t dim = inner; dim < strides.size(); ++dim) length *= piece.sizes[dim];
  std::vector<std::int64_t> at(inner, 0);
  for (std::int64_t done = 0; done < numel; done += length) {
    use(begin, length, done);
    for (std::size_t dim = inner; dim-- > 0;) {
      begin += strides[dim];
      if (++at[dim] < piece.sizes[dim]) break;
      begin -= strides[dim] * piece.sizes[dim];
      at[dim] = 0;
    }
  }
}

LogicalCheckpoint::LogicalCheckpoint(CheckpointContents contents) : contents_(std::move(contents)) {
  make_names_plain(contents_);
  for (const LogicalTensor& tensor : contents_.tensors) {
    check_pieces(path(), tensor);
    for (const TensorPiece& piece : tensor.pieces) {
      const CheckpointFile& file = contents_.files.at(piece.file);
      std::uint64_t bytes = 0;
      INTARSIA_CHECK(
          kFormat,
          !__builtin_mul_overflow(static_cast<std::uint64_t>(piece.numel()), dtype_size(tensor.dtype), &bytes) &&
              piece.begin <= file.bytes && bytes <= file.bytes - piece.begin,
          printable(file.path), " ends at byte ", file.bytes, ", before the end of \"", printable(tensor.stored_name()),
          "\", whose piece begins at byte ", piece.begin);
    }
    INTARSIA_CHECK(kFormat, index_.emplace(tensor.stored_name(), &tensor).second, printable(path()), " has \"",
                   printable(tensor.stored_name()), "\" twice");
  }
}

const LogicalTensor* LogicalCheckpoint::find(std::string_view kind, std::string_view name) const {
  const auto found = index_.find(concat(kind, ".", name));
  return found == index_.end() ? nullptr : found->second;
}

const LogicalTensor* LogicalCheckpoint::weight(std::string_view name) const {
  for (const char* kind : {"master", "weight"})
    if (const LogicalTensor* tensor = find(kind, name)) return tensor;
  const auto alias = contents_.aliases.find(std::string(name));
  if (alias == contents_.aliases.end() || alias->second == name) return nullptr;
  for (const char* kind : {"master", "weight"})
    if (const LogicalTensor* tensor = find(kind, alias->second)) return tensor;
  return nullptr;
}

std::vector<const LogicalTensor*> LogicalCheckpoint::weights() const {
  std::vector<const LogicalTensor*> out;
  for (const LogicalTensor& tensor : contents_.tensors)
    if ((tensor.kind == "master" || tensor.kind == "weight") && weight(tensor.name) == &tensor) out.push_back(&tensor);
  return out;
}

void LogicalCheckpoint::read(const LogicalTensor& tensor, std::int64_t begin, std::int64_t end, float* out) const {
  INTARSIA_INVARIANT(0 <= begin && begin <= end && end <= tensor.numel(), tensor.name, ": elements ", begin, " to ",
                     end);
  INTARSIA_CHECK(kFormat, is_weight_dtype(tensor.dtype), printable(path()), ": \"", printable(tensor.stored_name()),
                 "\" has dtype ", safetensors_name(tensor.dtype), "; F32, BF16, F16 and F64 can be read as numbers");
  for (const TensorPiece& piece : tensor.pieces) {
    std::optional<PieceReader> reader;  // opened at the first run that is wanted
    for_each_run(tensor, piece, [&](std::int64_t first, std::int64_t count, std::int64_t skipped) {
      const std::int64_t from = std::max(first, begin), to = std::min(first + count, end);
      if (from >= to) return;
      if (!reader) reader.emplace(contents_.files[piece.file]);
      const auto element = static_cast<std::uint64_t>(skipped + from - first);
      reader->read(piece.begin + element * dtype_size(tensor.dtype), tensor.dtype, to - from, out + (from - begin));
    });
  }
}

void LogicalCheckpoint::verify(std::size_t first, std::size_t stride) const {
  for (std::size_t i = first; i < contents_.files.size(); i += stride) {
    const CheckpointFile& file = contents_.files[i];
    if (file.archives.empty()) continue;
    const io::Fd fd = io::open_read(file.path);
    const io::MappedFile map = io::MappedFile::open(file.path);  // for the directories of the archives
    INTARSIA_CHECK(kIo, map.size() == file.bytes, printable(file.path), " changed while it was read: it had ",
                   file.bytes, " bytes and has ", map.size(), " now");
    for (const auto& [begin, end] : file.archives)
      for (const ZipRecord& record : read_zip_directory(map.view(begin, end - begin), file.path))
        check_zip_record(fd, file.path, begin, record);
  }
}

bool LogicalCheckpoint::has_checksums() const {
  return std::ranges::none_of(contents_.files,
                              [](const CheckpointFile& file) { return file.archives.empty() && !file.is_verified; });
}

}  // namespace intarsia::formats
