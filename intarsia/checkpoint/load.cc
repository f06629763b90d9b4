#include "intarsia/checkpoint/load.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/load_plan.h"
#include "intarsia/checkpoint/root_folder.h"

namespace intarsia::checkpoint {
namespace {

// Loads one checkpoint.
class Load {
 public:
  Load(std::string path, shard::Engine& engine, optim::Optimizer& optimizer)
      : path_(std::move(path)),
        what_(concat("the checkpoint ", printable(path_), " was not loaded")),
        engine_(engine),
        optimizer_(optimizer) {}

  Manifest run(Verify verify, const Accept& accept) {
    comm::Communicator& axis = engine_.world();
    all_or_none(axis, what_, [&] {
      manifest_ = read_manifest(path_);
      for (const StoredFile& file : manifest_.files) verify_file(path_, file, Verify::kSizes);
    });
    LoadPlan plan(path_, manifest_);
    damage_ = false;
    if (accept) accept(manifest_);
    all_or_none(axis, what_, [&] {
      plan.check_tensors(stored_tensors(engine_.plan()));
      for (const LocalPiece& piece : local_pieces(engine_, optimizer_, Part::kHeld)) plan.add(piece);
    });
    damage_ = true;
    all_or_none(axis, what_, [&] { plan.open_files(verify); });
    all_or_none(axis, what_, [&] { plan.run(); });
    optimizer_.set_updates(manifest_.progress.updates);
    engine_.publish();
    return std::move(manifest_);
  }

  // Whether what run() has thrown says that the checkpoint is damaged, and not that it is of another run.
  bool is_damaged() const { return damage_; }

 private:
  const std::string path_;
  const std::string what_;
  shard::Engine& engine_;
  optim::Optimizer& optimizer_;
  Manifest manifest_;
  bool damage_ = true;
};

std::string joined_names(const std::vector<StepFolder>& folders) {
  std::string text;
  for (const StepFolder& folder : folders) text += folder.name + "\n";
  return text;
}

// One rank lists: the folder may look different a moment later, or from another host.
std::vector<StepFolder> list_together(const std::string& root, comm::Communicator& axis) {
  std::vector<StepFolder> folders;
  all_or_none(axis, "looking for checkpoints", [&] {
    if (axis.rank() == 0) folders = list_steps(root);
  });
  return parse_names(broadcast_text(axis, joined_names(folders)));
}

}  // namespace

bool holds_checkpoints(const std::string& root) {
  return std::ranges::any_of(list_steps(root),
                             [](const StepFolder& folder) { return folder.kind != FolderKind::kUnfinished; });
}

Manifest load_checkpoint(const std::string& path, shard::Engine& engine, optim::Optimizer& optimizer, Verify verify,
                         const Accept& accept) {
  const at::NoGradGuard no_grad;
  return Load(path, engine, optimizer).run(verify, accept);
}

Found load_newest(const std::string& root, shard::Engine& engine, optim::Optimizer& optimizer, const Accept& accept) {
  const at::NoGradGuard no_grad;
  Found found;
  int committed = 0;
  for (const StepFolder& folder : list_together(root, engine.world())) {
    const std::string path = concat(root, "/", folder.name);
    if (folder.kind == FolderKind::kUnfinished) {
      found.passed_over.push_back({path, concat(printable(path), ": its save did not finish")});
      continue;
    }
    ++committed;
    Load load(path, engine, optimizer);
    try {
      found.manifest = load.run(Verify::kHashes, accept);
      found.path = path;
      return found;
    } catch (const Error& error) {
      // Errors of other ranks (kComm) are no property of a checkpoint.
      if (!load.is_damaged() || error.kind() == ErrorKind::kComm || error.kind() == ErrorKind::kInternal) throw;
      found.passed_over.push_back({path, error.what()});
    }
  }
  if (committed == 0) return found;
  std::string reasons;
  for (const PassedOver& passed : found.passed_over) reasons += concat("; ", passed.reason);
  fail(ErrorKind::kFormat, "no checkpoint in ", printable(root), " can be used", reasons,
       ". Bring one back, or drop them with --overwrite");
}

}  // namespace intarsia::checkpoint
