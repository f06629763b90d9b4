// Helpers of the peers' readers: files of torch.save and the plain values in them. Internal to formats.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/formats/peers/logical_checkpoint.h"
#include "intarsia/formats/pickle/torch_file.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {

// The file that `name`, which stands in `where`, means in `folder`, links followed. Errors: kFormat when it leaves the
// folder, kIo when it is not there.
std::string path_inside(const std::string& folder, const std::string& name, const std::string& where);

// Of the entries of `folder` that are called `prefix` and a decimal number, the name of the one with the highest number
// of which `is_one` holds, given its path; empty: none. Errors: kIo when the folder cannot be listed.
std::string highest_numbered(const std::string& folder, std::string_view prefix,
                             const std::function<bool(const std::string&)>& is_one);

// A mapped file of torch.save. Storages are not compared with their checksums: LogicalCheckpoint::verify() does that.
class ArchiveFile {
 public:
  explicit ArchiveFile(const std::string& path)
      : map_(io::MappedFile::open(path)), archive_(TorchArchive::read(map_.bytes(), path, RecordCheck::kStructure)) {}

  const std::string& path() const { return map_.path(); }
  const TorchArchive& archive() const { return archive_; }
  PickleValue root() const { return archive_.root(); }
  // Adds it to the files of a checkpoint; its index there.
  std::size_t add_to(CheckpointContents& contents) const;

 private:
  io::MappedFile map_;
  TorchArchive archive_;
};

// A number, also as a tensor of one element.
std::optional<double> number_of(const TorchArchive& archive, const PickleValue& value);

// A count that a file tells as any number; nothing when it is none, or beyond 1e15.
std::optional<std::int64_t> count_of(const std::optional<double>& number);

// The value of a key that may be a text or an integer.
std::optional<PickleValue> find_key(const PickleValue& dict, std::int64_t key);

// Elements of a shape. Errors: kFormat naming `where` and `what` when they are absurdly many.
std::int64_t numel_of(const std::vector<std::int64_t>& shape, const std::string& where, const std::string& what);

// torch.Size, a tuple or a list of numbers. Errors: kFormat naming `where` and `what`.
std::vector<std::int64_t> sizes_of(const PickleValue& value, const std::string& where, const std::string& what);

// The numbers that an optimizer's group of parameters has: lr, betas, eps, weight_decay.
std::map<std::string, double> group_numbers(const PickleValue& group);

// The numbers of a dict; entries of other kinds are left out, of a list of one number that number is taken.
std::map<std::string, double> dict_numbers(const PickleValue& dict);

}  // namespace intarsia::formats
