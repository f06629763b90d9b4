#include "intarsia/checkpoint/root_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <tuple>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/checkpoint/verify.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr double kRootLockSeconds = 60;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kLatestName = "latest";
constexpr std::string_view kGone = ".gone-";

std::optional<StepFolder> parse_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  StepFolder folder{.name = name};
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, folder.step);
  if (error != std::errc() || folder.step < 0 || step_name(folder.step) != std::string_view(name.data(), rest))
    return std::nullopt;
  const std::string_view suffix(rest, end);
  if (suffix.starts_with(".old-")) {
    folder.kind = FolderKind::kReplaced;
  } else if (suffix.starts_with(".wip-")) {
    folder.kind = FolderKind::kUnfinished;
  } else if (!suffix.empty()) {
    return std::nullopt;
  }
  return folder;
}

// Removes a folder of ours, the manifest first: what a crash leaves of it is no checkpoint. Foreign files stay, and the
// folder with them.
void remove_checkpoint(const std::string& path) {
  if (fs::is_symlink(fs::symlink_status(path))) return;
  std::error_code ignored;
  if (fs::remove(concat(path, "/", kManifestName), ignored)) io::fsync_directory(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") || name.starts_with(kManifestName)) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove(file);
  fs::remove(path);
}

// Whatever stops it: before the rename the checkpoint is whole, after it there is none.
void discard_checkpoint(const std::string& root, const std::string& path, const std::string& nonce) {
  const std::string gone = concat(root, "/", fs::path(path).stem().string(), kGone, nonce);
  io::rename_path(path, gone);
  io::fsync_directory(root);
  remove_checkpoint(gone);
}

// The same, for those that must not throw.
void try_remove_checkpoint(const std::string& path) noexcept {
  try {
    remove_checkpoint(path);
  } catch (const std::exception& error) {
    log_warning(concat("cannot remove ", printable(path), ": ", error.what()));
  }
}

bool looks_complete(const std::string& path) {
  try {
    for (const StoredFile& file : read_manifest(path).files) verify_file(path, file, Verify::kSizes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool nobody_writes(const std::string& path) {
  try {
    return FolderLock(path, 0).held();
  } catch (const Error&) {  // its writer has just removed it
    return false;
  }
}

// Only while the lock on the root is held: then no `latest` is being written and no step is being replaced.
void clear_leftovers(const std::string& root) {
  for (const StepFolder& folder : list_steps(root)) {
    const std::string path = concat(root, "/", folder.name);
    if (folder.kind == FolderKind::kUnfinished && nobody_writes(path)) try_remove_checkpoint(path);
    if (folder.kind != FolderKind::kReplaced) continue;
    const std::string step = concat(root, "/", step_name(folder.step));
    if (!fs::exists(step)) {  // the new one never came: the old one is the checkpoint of this step again
      io::rename_path(path, step);
      io::fsync_directory(root);
    } else if (looks_complete(step)) {
      try_remove_checkpoint(path);
    }
  }
  std::vector<fs::path> temporaries, gone;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(concat(kLatestName, ".tmp-"))) temporaries.push_back(entry.path());
    if (name.starts_with(kPrefix) && name.find(kGone) != std::string::npos) gone.push_back(entry.path());
  }
  for (const fs::path& folder : gone) try_remove_checkpoint(folder.string());
  std::error_code ignored;
  for (const fs::path& file : temporaries) fs::remove(file, ignored);
}

}  // namespace

void clear_away(const std::string& root) noexcept {
  try {
    if (!fs::exists(root)) return;
    const FolderLock root_lock(root, 0);
    if (root_lock.held()) clear_leftovers(root);
  } catch (const std::exception& error) {
    log_warning(concat("what crashes left in ", printable(root), " is not cleared away: ", error.what()));
  }
}

std::string step_name(std::int64_t step) { return concat(kPrefix, step); }

std::string work_path(const std::string& root, std::int64_t step, const std::string& nonce) {
  return concat(root, "/", step_name(step), ".wip-", nonce);
}

std::string draw_nonce() {
  std::random_device device;
  std::string nonce;
  for (int digit = 0; digit < 16; ++digit) nonce += "0123456789abcdef"[device() & 0xfU];
  return nonce;
}

std::vector<StepFolder> list_steps(const std::string& root) {
  std::vector<StepFolder> folders;
  std::error_code error;
  if (fs::status(root, error).type() == fs::file_type::not_found) return folders;
  fs::directory_iterator entries(root, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    const std::optional<StepFolder> folder = parse_name(entries->path().filename().string());
    if (folder && entries->is_directory(ignored)) folders.push_back(*folder);
  }
  if (error) io::fail_io("list the folder", root, error.value());
  std::ranges::sort(folders, [](const StepFolder& a, const StepFolder& b) {
    return std::tie(b.step, a.kind, a.name) < std::tie(a.step, b.kind, b.name);
  });
  return folders;
}

std::vector<StepFolder> parse_names(const std::string& lines) {
  std::vector<StepFolder> folders;
  std::istringstream stream(lines);
  for (std::string name; std::getline(stream, name);)
    if (const std::optional<StepFolder> folder = parse_name(name)) folders.push_back(*folder);
  return folders;
}

FolderLock::FolderLock(const std::string& path, double seconds)
    : fd_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!fd_.is_open()) io::fail_io("open the folder", path, errno);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    if (std::chrono::steady_clock::now() >= deadline) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  held_ = true;
}

WorkFolder::WorkFolder(std::string root, std::int64_t step, std::string nonce)
    : root_(std::move(root)), step_(step), nonce_(std::move(nonce)), path_(work_path(root_, step_, nonce_)) {
  std::error_code error;
  const bool created = fs::create_directory(root_, error);
  if (error) io::fail_io("create the folder", root_, error.value());
  if (created) io::fsync_directory(io::parent_directory(root_));
  const FolderLock root_lock(root_, kRootLockSeconds);
  if (root_lock.held()) clear_leftovers(root_);
  if (!fs::create_directory(path_, error)) io::fail_io("create the folder", path_, error ? error.value() : EEXIST);
  lock_ = std::make_unique<FolderLock>(path_, 0);
}

WorkFolder::~WorkFolder() {
  if (!committed_) try_remove_checkpoint(path_);
}

void WorkFolder::commit() {
  const FolderLock root_lock(root_, kRootLockSeconds);
  replace();
  try {
    io::write_file_atomic(concat(root_, "/", kLatestName), step_name(step_) + "\n");
  } catch (const std::exception& failure) {
    log_warning(concat("checkpoint ", step_name(step_), " is saved, but: ", failure.what()));
  }
}

void WorkFolder::replace() {
  const std::string target = concat(root_, "/", step_name(step_));
  const std::string old = concat(target, ".old-", nonce_);
  const bool replaces = fs::exists(target);
  if (replaces) io::rename_path(target, old);
  try {
    io::rename_path(path_, target);
  } catch (const Error&) {
    if (replaces) io::rename_path(old, target);
    throw;
  }
  committed_ = true;
  io::fsync_directory(root_);
  if (replaces) try_remove_checkpoint(old);
}

std::vector<std::string> WorkFolder::superfluous(const Retention& retention) const {
  std::vector<std::string> paths;
  if (!retention.removes_any()) return paths;
  int kept = 1;  // this one
  for (const StepFolder& folder : list_steps(root_)) {
    if (folder.kind != FolderKind::kCheckpoint || folder.step == step_) continue;
    const std::string path = concat(root_, "/", folder.name);
    const bool older = folder.step < step_;
    const bool milestone = retention.keep_every > 0 && folder.step % retention.keep_every == 0;
    if (older && kept >= retention.keep && !milestone) {
      paths.push_back(path);
    } else if (looks_complete(path)) {
      ++kept;
    }
  }
  return paths;
}

bool WorkFolder::would_prune(const Retention& retention) const noexcept {
  try {
    return !superfluous(retention).empty();
  } catch (const std::exception&) {
    return true;
  }
}

void WorkFolder::prune(const Retention& retention) {
  const FolderLock root_lock(root_, kRootLockSeconds);
  for (const std::string& path : superfluous(retention)) discard_checkpoint(root_, path, nonce_);
}

}  // namespace intarsia::checkpoint
