// Files of torch.save: a zip archive with one pickle and the storages of its tensors. Nothing in them is executed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/formats/pickle/pickle.h"
#include "intarsia/formats/pickle/zip_file.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::formats {

// A tensor as it is saved: a view of a storage, all of it inside.
struct TorchTensor {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements, none negative
  std::uint64_t begin = 0;            // byte of its first element, counted from the begin of the archive

  std::int64_t numel() const;
  // Whether its elements lie one after another in row-major order.
  bool is_contiguous() const;
};

// How much of an archive is compared with its checksums when it is opened.
enum class RecordCheck {
  kAll,       // every byte
  kStructure  // all but the storages, whose records check_zip_record() can compare later
};

// One archive: a whole file, or a part of one, as DCP keeps many in a file.
// Threads: const members may be called at once.
class TorchArchive {
 public:
  // `bytes` must outlive the object; `name` is for messages.
  // Memory: the pickle's values and the list of records. Errors: kFormat and kUnsupported for damaged archives, packed
  // records, old files without an archive, big-endian ones, records without their checksum, and what Pickle::read
  // refuses.
  static TorchArchive read(std::span<const std::byte> bytes, std::string name, RecordCheck check = RecordCheck::kAll);

  const std::string& name() const { return name_; }
  PickleValue root() const { return pickle_->root(); }
  // The tensor that a value is; nothing when it is something else. Parameters and rebuilt tensors are tensors too.
  // Errors: kFormat for a view that does not lie in its storage, or whose storage is missing or too short; kUnsupported
  // for element types that are not known.
  std::optional<TorchTensor> tensor(const PickleValue& value) const;
  // The bytes of a contiguous tensor. Errors: kUnsupported for another one.
  std::span<const std::byte> bytes(const TorchTensor& tensor) const;

 private:
  TorchArchive(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  TorchTensor rebuilt(const PickleValue& arguments) const;
  std::uint64_t place_storage(const PickleValue& persistent, TorchTensor& tensor, std::int64_t& numel) const;

  std::span<const std::byte> bytes_;
  std::string name_;
  std::string prefix_;  // of the records' names, "archive/"
  std::unordered_map<std::string, ZipRecord> records_;
  std::shared_ptr<const Pickle> pickle_;
};

// The weights in a file of torch.save (pytorch_model.bin): a dict of name to contiguous tensor.
// Errors: as TorchArchive's; kIo; kFormat for other contents.
TensorFile open_torch_weights(const std::string& path);

}  // namespace intarsia::formats
