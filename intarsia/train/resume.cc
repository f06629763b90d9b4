#include "intarsia/train/resume.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/load_peer.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/train/run_folder.h"

namespace intarsia::train {
namespace {

using checkpoint::Manifest;

class Resume {
 public:
  Resume(const TrainJob& job, const std::string& run, comm::Communicator& axis, Assembly& assembly, Console& console)
      : job_(job), run_(run), assembly_(assembly), console_(console), is_first_(axis.rank() == 0) {}

  Resumed run();

 private:
  std::string root() const;
  Resumed run_from_peer(const std::string& given);
  void check_unchanged(const Manifest& manifest) const;
  bool leaves_reproducible(const Manifest& manifest) const;
  void check_logical_micro_batches(const Manifest& manifest) const;

  const TrainJob& job_;
  const std::string& run_;
  Assembly& assembly_;
  Console& console_;
  bool is_first_;
  checkpoint::Progress progress_;
};

void Resume::check_unchanged(const Manifest& manifest) const {
  if (manifest.config.empty()) return;  // converted from a peer's, which does not tell
  const bool leaves = leaves_reproducible(manifest);
  std::vector<std::string> changed = changed_keys(
      manifest.config, job_.config_json, job_.plan.schedule.ends_with_the_run(), !job_.plan.reproducible && !leaves);
  std::erase_if(changed, [&](const std::string& key) {
    if (leaves && (key == "intarsia.reproducible" || key == "intarsia.logical_micro_batches")) return true;
    for (const std::string& allowed : job_.loop.changes_allowed)
      if (key == allowed || key.starts_with(allowed + ".") || key.ends_with("." + allowed)) return true;
    return false;
  });
  INTARSIA_CHECK(kConfig, changed.empty(), "the run in ", run_, " was made with other settings: ", join(changed),
                 "; allow them with --resume-with-changes ", join(changed, " "),
                 ", start in another folder with --out, or drop the old checkpoints with --overwrite",
                 manifest.logical_micro_batches > 0 && !job_.plan.reproducible
                     ? "; --not-reproducible goes on with this reproducible run in any layout"
                     : "");
}

// The run was reproducible up to this checkpoint, and the user gives that up.
bool Resume::leaves_reproducible(const Manifest& manifest) const {
  return job_.loop.leave_reproducible && manifest.logical_micro_batches > 0;
}

// A reproducible run keeps its bits on every number of ranks of its chain, but not with another tree of sums.
void Resume::check_logical_micro_batches(const Manifest& manifest) const {
  const std::int64_t logical = job_.plan.reproducible ? job_.plan.logical_order().count() : 0;
  if (logical == 0 || manifest.logical_micro_batches == logical) return;
  INTARSIA_CHECK(kConfig, manifest.logical_micro_batches > 0, "the run in ", run_,
                 " was not reproducible so far: leave --reproducible out, or start in another folder with --out");
  fail(ErrorKind::kConfig, concat("the run in ", run_, " adds up ", manifest.logical_micro_batches,
                                  " logical micro-batches an update, not ", logical, "; give --logical-micro-batches ",
                                  manifest.logical_micro_batches));
}

// The folder whose newest checkpoint is taken; empty: --resume names one itself.
std::string Resume::root() const {
  namespace fs = std::filesystem;
  if (job_.loop.resume == "auto") return (fs::path(run_) / "checkpoints").string();
  const fs::path given(job_.loop.resume), inner = given / "checkpoints";
  if (fs::exists(given / checkpoint::kManifestName)) return "";
  return fs::is_directory(inner) ? inner.string() : given.string();
}

Resumed Resume::run() {
  progress_.seed = job_.plan.seed;
  if (job_.loop.resume == "never") return {progress_};
  if (job_.loop.resume != "auto" && formats::is_peer_checkpoint(job_.loop.resume))
    return run_from_peer(job_.loop.resume);
  // Before the tensors: another optimizer is first of all another setting.
  const auto accept = [&](const Manifest& manifest) {
    check_unchanged(manifest);
    check_logical_micro_batches(manifest);
  };
  checkpoint::Found found;
  if (const std::string folder = root(); !folder.empty()) {
    found = checkpoint::load_newest(folder, *assembly_.engine, *assembly_.optimizer, accept);
    const std::string& given = job_.loop.resume;
    if (!found.path && given != "auto")
      fail(std::filesystem::exists(given) ? ErrorKind::kFormat : ErrorKind::kUsage, "--resume ", printable(given),
           " holds no checkpoint: neither a manifest.json nor step-N folders, nor a peer's files");
  } else {
    found.path = job_.loop.resume;
    found.manifest = checkpoint::load_checkpoint(*found.path, *assembly_.engine, *assembly_.optimizer,
                                                 checkpoint::Verify::kHashes, accept);
  }
  for (const checkpoint::PassedOver& passed : found.passed_over)
    if (is_first_) log_warning(concat(passed.path, " is passed over: ", passed.reason));
  if (!found.path) return {progress_};
  const std::string from = *found.path;
  const Manifest& manifest = *found.manifest;
  progress_ = manifest.progress;
  if (manifest.config.empty()) {  // converted: the format that it was in tells neither seed nor, perhaps, data
    progress_.seed = job_.plan.seed;
    if (progress_.data_position == 0) progress_.data_position = progress_.step * job_.sampler.global_batch();
  }
  if (leaves_reproducible(manifest)) {
    progress_.not_reproducible_since = progress_.step;
    if (is_first_)
      log_warning(concat("the run was reproducible up to step ", progress_.step,
                         " and is not from here on (--not-reproducible); its checkpoints say so"));
  }
  if (job_.plan.loss_scale.dynamic && progress_.loss_scale) assembly_.loss_scale->restore(*progress_.loss_scale);
  if (is_first_) {
    console_.note(concat("resumed from ", from, ": step ", progress_.step, ", ", progress_.tokens, " tokens"));
    if (progress_.step >= job_.plan.steps)
      console_.note(
          concat("nothing to train: the run has ", progress_.step, " steps, --steps asks for ", job_.plan.steps));
  }
  return {progress_, true};
}

// DeepSpeed's or DCP's: weights, state, counters and loss scale go on; the order of the data is this run's own.
Resumed Resume::run_from_peer(const std::string& given) {
  const std::string from = formats::find_peer_checkpoint(given);
  const checkpoint::PeerProgress peer = checkpoint::load_peer(from, *assembly_.engine, *assembly_.optimizer);
  progress_ = peer.progress;
  progress_.seed = job_.plan.seed;
  if (!peer.has_data_position) progress_.data_position = progress_.step * job_.sampler.global_batch();
  if (job_.plan.loss_scale.dynamic && progress_.loss_scale) assembly_.loss_scale->restore(*progress_.loss_scale);
  if (!is_first_) return {progress_};
  console_.note(concat("goes on from ", from, " (", peer.format, "): step ", progress_.step, ", ", progress_.updates,
                       " updates; the data go on at sample ", progress_.data_position, " of this run's own order"));
  const double lr = job_.plan.schedule.lr_at_update(progress_.updates + 1);
  if (peer.next_lr && std::abs(*peer.next_lr - lr) > 1e-6 * std::max(std::abs(lr), std::abs(*peer.next_lr)))
    log_warning(concat("the checkpoint's next learning rate is ", shortest(*peer.next_lr), ", this run's ",
                       shortest(lr), "; give --lr and --schedule as they were to go on as before"));
  if (progress_.step >= job_.plan.steps)
    console_.note(
        concat("nothing to train: the checkpoint has ", progress_.step, " steps, --steps asks for ", job_.plan.steps));
  return {progress_};
}

}  // namespace

Resumed resume_run(const TrainJob& job, const std::string& run, comm::Communicator& axis, Assembly& assembly,
                   Console& console) {
  return Resume(job, run, axis, assembly, console).run();
}

}  // namespace intarsia::train
