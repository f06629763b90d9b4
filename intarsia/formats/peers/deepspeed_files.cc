#include "intarsia/formats/peers/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTagBytes = 4096;
constexpr int kMaxRanks = 1'000'000;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_model_file(std::string_view name) { return name.ends_with("model_states.pt"); }
bool is_optimizer_file(std::string_view name) { return name.ends_with("optim_states.pt"); }

// The number behind `prefix`, which is cut off with it.
std::optional<int> take_number(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  int value = 0;
  const char* const begin = text.data() + prefix.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kMaxRanks) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string tag_folder(const std::string& path) {
  for (const char* name : {"latest", "latest_universal"}) {
    const fs::path file = fs::path(path) / name;
    if (!is_there(file)) continue;
    std::string tag = io::read_text_file(file.string(), kMaxTagBytes);
    while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
    return path_inside(path, tag, file.string());
  }
  return path;
}

// The files by their rank: all of 0 .. most, where `most` is the highest that is there.
std::vector<std::string> by_rank(const std::map<int, std::string>& files, const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& [rank, path] : files) {
    if (rank != static_cast<int>(out.size())) {
      std::string missing = fs::path(path).filename().string();
      const std::string from = concat("rank_", rank, "_"), to = concat("rank_", out.size(), "_");
      missing.replace(missing.find(from), from.size(), to);
      fail(ErrorKind::kFormat, printable(folder), " lacks ", printable(missing), ", the file of rank ", out.size(),
           ", but has that of rank ", rank, "; was the checkpoint copied completely?");
    }
    out.push_back(path);
  }
  return out;
}

}  // namespace

bool is_deepspeed(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  if (is_there(fs::path(path) / "latest_universal")) return true;
  bool has_tag_file = false;
  for (const std::string& name : io::list_directory(path)) {
    if (is_model_file(name) || is_optimizer_file(name)) return true;
    has_tag_file = has_tag_file || name == "latest";
  }
  // A RUN of ours has such a file, too, but it names one of its checkpoints.
  if (!has_tag_file) return false;
  const std::string tag = io::read_text_file((fs::path(path) / "latest").string(), kMaxTagBytes);
  return !tag.starts_with("step-");
}

DeepSpeedFiles find_deepspeed_files(const std::string& path) {
  DeepSpeedFiles out;
  out.folder = tag_folder(path);
  std::error_code error;
  INTARSIA_CHECK(kFormat, fs::is_directory(out.folder, error), printable(out.folder), " is no folder");
  out.is_universal = fs::is_directory(fs::path(out.folder) / "zero", error);
  std::map<int, std::string> partitioned, optimizer, optimizer_bf16;
  std::string single;
  for (const std::string& name : io::list_directory(out.folder)) {
    if (!is_model_file(name) && !is_optimizer_file(name)) continue;
    const auto refuse = [&](const char* what) {
      fail(ErrorKind::kUnsupported, printable(out.folder), " has ", printable(name), ", a file of ", what,
           ", which is not read; convert the checkpoint once with DeepSpeed's ds_to_universal.py or zero_to_fp32.py");
    };
    if (name.starts_with("layer_") && name.find("expert") == name.npos) refuse("pipeline parallelism");
    if (name.starts_with("layer_") || name.starts_with("expp_")) refuse("expert parallelism");
    const std::string file = path_inside(out.folder, name, out.folder);
    std::string_view rest = name;
    if (const auto model = take_number(rest, "mp_rank_"); model && rest == "_model_states.pt") {
      if (*model > 0) refuse("tensor parallelism");
      single = file;
      continue;
    }
    rest = name;
    const bool bf16 = rest.starts_with("bf16_");
    if (bf16) rest.remove_prefix(5);
    const auto rank = take_number(rest, "zero_pp_rank_");
    const auto model = take_number(rest, "_mp_rank_");
    if (!rank || !model) continue;
    if (*model > 0) refuse("tensor parallelism");
    if (rest == "_model_states.pt") partitioned[*rank] = file;
    // Old versions left out the underscore.
    if (rest == "_optim_states.pt" || rest == "optim_states.pt") (bf16 ? optimizer_bf16 : optimizer)[*rank] = file;
  }
  INTARSIA_CHECK(kFormat, optimizer.empty() || optimizer_bf16.empty(), printable(out.folder),
                 " has optimizer files of two runs, with bf16_ before their names and without; move those of one away");
  out.optimizer_files = by_rank(optimizer.empty() ? optimizer_bf16 : optimizer, out.folder);
  out.is_partitioned = single.empty();
  out.model_files = out.is_partitioned ? by_rank(partitioned, out.folder) : std::vector<std::string>{single};
  INTARSIA_CHECK(kFormat, !out.model_files.empty(), printable(out.folder),
                 " lacks mp_rank_00_model_states.pt, the file with the model's weights or its shapes");
  return out;
}

}  // namespace intarsia::formats
