#include "intarsia/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"

namespace intarsia::train {
namespace {

namespace fs = std::filesystem;

// Settings of the "intarsia" section that decide when something is written or how ranks talk, never what is computed.
// The number of steps is free: a run may be made longer.
constexpr std::array kFreeKeys = {"out",
                                  "steps",
                                  "epochs",
                                  "resume",
                                  "fresh",
                                  "overwrite",
                                  "eval_every",
                                  "save_every",
                                  "keep",
                                  "log_every",
                                  "dry_run",
                                  "threads",
                                  "bind",
                                  "force",
                                  "backend",
                                  "force_copy",
                                  "comm_timeout_seconds",
                                  "eval_data",
                                  "dump_step",
                                  "dump_gradients",
                                  "resume_with_changes",
                                  "max_bad_steps",
                                  "early_stopping",
                                  "save_best",
                                  "sample_prompts",
                                  "sample_every",
                                  "sample_tokens",
                                  "sample_chat",
                                  "keep_every",
                                  "async_save",
                                  "not_reproducible"};

bool is_free(const std::string& path) {
  if (path.starts_with("/tensorboard/") || path.starts_with("/csv_monitor/")) return true;
  constexpr std::string_view kSection = "/intarsia/";
  if (!path.starts_with(kSection)) return false;
  const std::string rest = path.substr(kSection.size());  // a list's items are KEY/0, KEY/1, ...
  return std::ranges::find(kFreeKeys, rest.substr(0, rest.find('/'))) != kFreeKeys.end();
}

// What only says where state rests and how the batch is cut: in reproducible mode it changes no bit.
bool is_layout(const std::string& path) {
  constexpr std::array kPaths = {"/gradient_accumulation_steps",
                                 "/train_micro_batch_size_per_gpu",
                                 "/intarsia/shard_size",
                                 "/intarsia/reshard_after_forward",
                                 "/intarsia/no_sync",
                                 "/intarsia/recompute",
                                 "/intarsia/ranks",
                                 "/intarsia/logical_micro_batches"};
  return path.starts_with("/zero_optimization/") || path.starts_with("/activation_checkpointing/") ||
         std::ranges::find(kPaths, path) != kPaths.end();
}

}  // namespace

std::string new_run_folder(const std::string& name) {
  for (int number = 1;; ++number) {
    const fs::path path = fs::path("runs") / (name + "-" + std::to_string(number));
    if (!fs::exists(path)) return path.string();
  }
}

void make_run_folder(const std::string& run) {
  std::error_code error;
  for (const char* sub : {"", "checkpoints"}) {
    fs::create_directories(fs::path(run) / sub, error);
    INTARSIA_CHECK(kIo, !error, (fs::path(run) / sub).string(), ": cannot be created: ", error.message(),
                   "; give another folder with --out");
  }
}

std::vector<std::string> changed_keys(const std::string& before, const std::string& now, bool steps_matter,
                                      bool layout_matters) {
  const nlohmann::json a = nlohmann::json::parse(before, nullptr, false).flatten();
  const nlohmann::json b = nlohmann::json::parse(now, nullptr, false).flatten();
  std::vector<std::string> keys;
  const auto note = [&](const std::string& path) {
    const bool length = path == "/intarsia/steps" || path == "/intarsia/epochs";
    const bool free = (is_free(path) && !(steps_matter && length)) || (!layout_matters && is_layout(path));
    if (!free && std::ranges::find(keys, path.substr(1)) == keys.end()) keys.push_back(path.substr(1));
  };
  for (const auto& [path, value] : a.items())
    if (!b.contains(path) || b[path] != value) note(path);
  for (const auto& [path, value] : b.items())
    if (!a.contains(path)) note(path);
  for (std::string& key : keys) std::ranges::replace(key, '/', '.');
  return keys;
}

RunLock::RunLock(const std::string& run) : fd_(::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  INTARSIA_CHECK(kIo, fd_ >= 0, run, ": cannot be opened: ", std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  fail(ErrorKind::kUsage, "another run is writing in ", run, "; wait for its end, or give another folder with --out");
}

RunLock::~RunLock() { ::close(fd_); }

}  // namespace intarsia::train
