// Writer of safetensors files: the list of tensors first, then their bytes, one after another or piece by piece from
// several processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/formats/safetensors.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {

struct TensorDecl {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

// Where every byte of a file goes; a pure function of its arguments, so that every rank computes the same.
struct SafetensorsLayout {
  std::string head;                 // the length, the header and its padding: the bytes before the data
  std::vector<TensorInfo> tensors;  // in the order of their bytes: larger elements first, then by name
  std::uint64_t file_bytes = 0;

  // Index into `tensors`. Errors: kInternal for an unknown name.
  std::size_t index_of(std::string_view name) const;
  std::uint64_t data_begin() const { return head.size(); }
};

// `metadata` is added to {"format": "pt"}, without which transformers refuses a file.
// Errors: kUnsupported for what our reader would refuse: repeated or overlong names, over 8 dimensions, a header above
// its limit.
SafetensorsLayout layout_safetensors(std::vector<TensorDecl> tensors, std::map<std::string, std::string> metadata = {});

// Writes one file, through PATH.partial, which becomes PATH only in finish(): a crash leaves no file that looks whole.
// Several processes may write one file: one creates it, the others join() after that, each writes its pieces and
// flushes, and after a barrier the creator finishes.
// Memory: the layout; no tensor is kept. Threads: write_at() may be called at once for ranges that do not meet.
class SafetensorsWriter {
 public:
  // Creates PATH.partial (replacing one that a crash left) at its full size. Errors: kIo, also for a full disk.
  static SafetensorsWriter create(const std::string& path, SafetensorsLayout layout);
  // Opens the PATH.partial that another process created with the same layout. Errors: kIo, kFormat.
  static SafetensorsWriter join(const std::string& path, SafetensorsLayout layout);

  SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  // Removes PATH.partial when its creator did not come to finish().
  ~SafetensorsWriter();

  const SafetensorsLayout& layout() const { return layout_; }

  // Appends bytes in the order of layout().tensors; a call may carry a part of a tensor, or cross into the next. The
  // disk begins to write them while more are appended.
  void append(std::span<const std::byte> bytes);

  // Writes bytes of tensor `index` from its byte `offset` on. Errors: kInternal unless they lie inside the tensor.
  void write_at(std::size_t index, std::uint64_t offset, std::span<const std::byte> bytes);

  // Returns when what this process wrote is on stable storage.
  void flush();

  // Creator only, once: makes the file durable and gives it its name. Errors: kInternal when append() was used and
  // bytes are missing.
  void finish();

 private:
  SafetensorsWriter(std::string path, SafetensorsLayout layout, io::Fd fd, bool creator);

  std::string path_;
  std::string partial_;
  SafetensorsLayout layout_;
  io::Fd fd_;
  bool creator_ = false;
  std::uint64_t appended_ = 0;
  std::uint64_t written_back_ = 0;  // byte of the file up to which the disk was asked to begin
};

}  // namespace intarsia::formats
