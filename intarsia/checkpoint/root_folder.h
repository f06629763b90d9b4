// The folder that holds a run's checkpoints: names in it, who may change it, and the commit. Internal to checkpoint.
//
//   step-N               a checkpoint
//   step-N.wip-NONCE     being written; its writer holds a lock on it, so one without a lock is a crash's leftover
//   step-N.old-NONCE     a checkpoint that a new one of the same step replaces; it counts until step-N is there again
//   step-N.gone-NONCE    a checkpoint that is being removed; it counts no more
//   latest               one line, the name of the last checkpoint saved: for people; loading does not ask it
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/io/file.h"

namespace intarsia::checkpoint {

enum class FolderKind { kCheckpoint, kReplaced, kUnfinished };

struct StepFolder {
  std::int64_t step = 0;
  FolderKind kind = FolderKind::kCheckpoint;
  std::string name;
};

std::string step_name(std::int64_t step);

// Highest step first; of one step in the order of FolderKind. Other names are left out; a missing root is empty.
// Errors: kIo.
std::vector<StepFolder> list_steps(const std::string& root);

// The folders with these names, one a line, in this order. Names that list_steps() would leave out are left out.
std::vector<StepFolder> parse_names(const std::string& lines);

// An advisory lock on a folder, which ends with the object or the process. File systems without locks give none.
class FolderLock {
 public:
  // Waits up to `seconds` for it. Errors: kIo when the folder cannot be opened.
  FolderLock(const std::string& path, double seconds);
  bool held() const { return held_; }

 private:
  io::Fd fd_;
  bool held_ = false;
};

// 16 hexadecimal digits that nobody else draws.
std::string draw_nonce();

// Which checkpoints stay.
struct Retention {
  int keep = 0;                 // the newest, the one just saved included; 0: all
  std::int64_t keep_every = 0;  // and those of steps that are multiples of it; 0: none

  bool removes_any() const { return keep > 0; }
};

// The folder of a checkpoint that is being written. One rank owns it. The destructor removes it unless committed.
class WorkFolder {
 public:
  // Creates ROOT (its parent must exist) and ROOT/step-N.wip-NONCE, after clearing away what crashes left in ROOT.
  // Errors: kIo.
  WorkFolder(std::string root, std::int64_t step, std::string nonce);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }

  // Makes it ROOT/step-N, durably, replacing one that exists; then writes `latest`. Errors: kIo when it did not become
  // step-N; what fails after that is a warning.
  void commit();

  // After commit(), when the new checkpoint has been read back: removes older ones that nobody asked to keep. The
  // newest `keep` complete ones stay (0: all), this one always, and those whose step is a multiple of `keep_every` (0:
  // none). Errors: kIo.
  void prune(const Retention& retention);
  // Whether prune() has anything to remove; true when that cannot be told.
  bool would_prune(const Retention& retention) const noexcept;

 private:
  void replace();
  std::vector<std::string> superfluous(const Retention& retention) const;  // paths

  std::string root_;
  std::int64_t step_;
  std::string nonce_;
  std::string path_;
  std::unique_ptr<FolderLock> lock_;
  bool committed_ = false;
};

// The path of the work folder, which every rank can tell.
std::string work_path(const std::string& root, std::int64_t step, const std::string& nonce);

}  // namespace intarsia::checkpoint
