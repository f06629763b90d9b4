// One body file of a checkpoint, opened to read pieces of tensors. Internal to checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "intarsia/checkpoint/manifest.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {

class BodyFile {
 public:
  // Errors: kIo, kFormat.
  explicit BodyFile(const std::string& path);

  // Where the tensors begin: bytes of length and header.
  std::uint64_t data_begin() const { return data_begin_; }
  const io::Fd& fd() const { return fd_; }

  // Where the elements of this piece begin in the file. Errors: kFormat when the file has it otherwise than the
  // manifest says, or not at all.
  std::uint64_t locate(const StoredTensor& tensor, const StoredPiece& piece) const;

  // Fills `out`, one-dimensional, from elements of `dtype` that begin at byte `at`; converted when the dtypes differ.
  // Errors: kIo.
  void read(std::uint64_t at, DType dtype, const at::Tensor& out) const;

 private:
  formats::SafetensorsFile header_;
  io::Fd fd_;
  std::uint64_t data_begin_ = 0;
};

}  // namespace intarsia::checkpoint
