// What one rank will read from a checkpoint, checked in steps that tell a damaged checkpoint from one of another model.
// Internal to checkpoint.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "intarsia/checkpoint/body_file.h"
#include "intarsia/checkpoint/inventory.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/checkpoint/verify.h"

namespace intarsia::checkpoint {

class LoadPlan {
 public:
  // Both must outlive the plan.
  LoadPlan(const std::string& directory, const Manifest& manifest);

  // The model's tensors and the checkpoint's must be the same, in name, kind and shape. Errors: kFormat.
  void check_tensors(const std::vector<StoredTensor>& wanted) const;

  // Notes where these elements lie. Opens no file. Errors: kFormat when the checkpoint lacks them.
  void add(const LocalPiece& wanted);

  // Opens the files that hold what was added; with kHashes it checks the blocks that run() will read, and no others.
  // Errors: kIo; kFormat when a file is not what the manifest says.
  void open_files(Verify verify);

  // Reads it all, into place. Errors: kIo.
  void run() const;

 private:
  // One contiguous read.
  struct Read {
    const StoredTensor* tensor = nullptr;
    const StoredPiece* piece = nullptr;
    std::uint64_t skipped = 0;  // bytes of the piece before the first that is wanted
    at::Tensor out;
    std::uint64_t at = 0;  // byte in the file; known once the file is open
  };

  const StoredTensor& find(TensorKind kind, const std::string& name) const;
  void open_file(std::size_t index, std::vector<Read>& reads, Verify verify);

  const std::string& directory_;
  const Manifest& manifest_;
  std::unordered_map<std::string, const StoredTensor*> stored_;  // by stored_name()
  std::map<std::size_t, std::vector<Read>> reads_;               // by index into Manifest::files
  std::map<std::size_t, BodyFile> files_;
};

}  // namespace intarsia::checkpoint
