// From a log of file operations to the states that a power cut may leave.
//
// What was fsynced is on the disk. Of the rest nothing is sure: a write may be there, not there, or torn at any
// multiple of 512 bytes; a name may be there or not. A folder's names (made, renamed, removed) are on the disk when the
// folder was fsynced after them; else they are kept up to some point in the order in which they were made, as
// journalling file systems keep them, or, harsher, any of them is lost.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace intarsia::testing {

struct FileOperation {
  unsigned kind = 0;  // shim_record_kind
  std::string path, target, data;
  std::uint64_t object = 0, offset = 0;
  bool exact = false;
};

// Errors: std::runtime_error when the log is cut off.
std::vector<FileOperation> read_operations(const std::string& log_path);

// A folder's files by path, relative to it; folders are paths that end with '/'.
using Tree = std::map<std::string, std::string>;
Tree read_tree(const std::string& root);
void write_tree(const Tree& tree, const std::string& root);

class CrashReplay {
 public:
  // `before`: what is on the disk, all of it durable, when the log begins. `objects`: inode numbers of its folders.
  CrashReplay(Tree before, std::map<std::uint64_t, std::string> objects, const std::string& root,
              std::vector<FileOperation> operations);

  std::size_t size() const { return operations_.size(); }
  const FileOperation& operation(std::size_t at) const { return operations_[at]; }
  bool syncs_root(std::size_t at) const;

  enum class Names { kKept, kPrefix, kAny };  // what happens to those that are not durable
  enum class Data { kKept, kDropped, kAny };  // the same of bytes; kAny: each write kept, dropped or torn
  // A state after a power cut when operations [0, count) have been done.
  Tree state(std::size_t count, Names names, Data data, std::mt19937_64& random) const;

 private:
  bool is_durable(std::size_t at, std::size_t count) const;

  Tree before_;
  std::uint64_t root_object_ = 0;
  std::vector<FileOperation> operations_;  // paths relative to the root
  // Of each operation: the file or folder whose fsync makes it durable, as a number that is not used twice.
  std::vector<std::uint64_t> owner_;
};

}  // namespace intarsia::testing
