// The elements of a checkpoint's tensors, part by part, for the writers of other formats. Internal to formats.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

// Called with the bytes written so far and in all.
using WriteProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Memory: buffers of 4 MiB, whatever the tensor's size.
class TensorCopier {
 public:
  TensorCopier(const LogicalCheckpoint& checkpoint, const WriteProgress& progress)
      : checkpoint_(checkpoint), progress_(progress) {}

  // Bytes that will be copied, beyond those told before: for the progress.
  void expect(std::int64_t bytes) { total_ += bytes; }

  // Passes the tensor's elements in row-major order to `use`, as `dtype` (F32, BF16 or F16): fp32 is exact for what is
  // stored in up to 32 bits, 16 bits are rounded to nearest, ties to even. Errors: those of LogicalCheckpoint::read.
  void copy(const LogicalTensor& tensor, DType dtype, const std::function<void(std::span<const std::byte>)>& use);

 private:
  const LogicalCheckpoint& checkpoint_;
  const WriteProgress& progress_;
  std::vector<float> values_;
  std::vector<std::uint16_t> halves_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace intarsia::formats
