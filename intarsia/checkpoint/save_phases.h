// A save as a row of phases, so that blocking and background saves are one code: each phase is a local part, which
// calls no other rank and may run in another thread, and then a part that all ranks take together. Internal to
// checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/checkpoint/inventory.h"
#include "intarsia/checkpoint/root_folder.h"
#include "intarsia/checkpoint/save.h"

namespace intarsia::checkpoint {

class SavePhases {
 public:
  // Agrees on what is saved and makes the work folder. Collective. Errors: those of save_checkpoint().
  SavePhases(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer);

  // The pieces that this rank will write. Their values may be replaced by copies.
  std::vector<LocalPiece>& pieces() { return pieces_; }

  bool done() const { return phase_ == Phase::kDone; }
  // What a failed phase means.
  const std::string& what() const { return what_; }

  // The local part of the present phase.
  void run_local();
  // The common part; then comes the next phase. Collective, after all ranks' local parts have succeeded.
  void advance();
  // Whether the checkpoint is there: then a failed phase is only a warning. The same on every rank.
  bool is_committed() const { return phase_ > Phase::kCommit; }

  Saved saved() const;

 private:
  enum class Phase { kWrite, kCommit, kReadBack, kPrune, kDone };

  Retention retention() const { return {.keep = request_.keep, .keep_every = request_.keep_every}; }
  void check_same_state();
  void gather_files();

  const SaveRequest request_;
  comm::Communicator& axis_;
  const std::string what_;
  std::string nonce_;
  Manifest manifest_;
  std::vector<LocalPiece> pieces_;
  std::unique_ptr<WorkFolder> folder_;  // rank 0's
  StoredFile mine_;
  bool prunes_ = false;  // older checkpoints are to go
  Phase phase_ = Phase::kWrite;
};

// Runs `local` on all ranks, together or not at all, and goes to the next phase. False: the checkpoint is there, but
// what was to follow failed, and has been told. Collective. Errors: those of save_checkpoint().
bool advance_together(comm::Communicator& axis, SavePhases& phases, const std::function<void()>& local);

}  // namespace intarsia::checkpoint
