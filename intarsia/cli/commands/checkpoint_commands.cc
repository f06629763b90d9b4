#include "intarsia/cli/commands/checkpoint_commands.h"

#include <charconv>
#include <filesystem>

#include "intarsia/formats/peers/open_checkpoint.h"

namespace intarsia::cli {

namespace fs = std::filesystem;

formats::LogicalCheckpoint open_peer(const std::string& path, bool verify) {
  formats::LogicalCheckpoint checkpoint = formats::open_checkpoint(path);
  if (verify) checkpoint.verify();
  return checkpoint;
}

std::string find_native(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / "manifest.json", error)) return path;
  fs::path folder(path);
  if (fs::is_directory(folder / "checkpoints", error)) folder /= "checkpoints";
  if (!fs::is_directory(folder, error)) return "";
  std::string best;
  std::int64_t highest = -1;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with("step-") || !fs::exists(entry.path() / "manifest.json", error)) continue;
    const auto [end, parsed] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (parsed != std::errc() || end != name.data() + name.size() || step <= highest) continue;
    highest = step;
    best = entry.path().string();
  }
  return best;
}

bool asks_for_native(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--to=native" || (word == "--to" && i + 1 < argc && std::string_view(argv[i + 1]) == "native"))
      return true;
  }
  return false;
}

bool names_native_checkpoint(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (argv[i][0] != '-' && !find_native(argv[i]).empty()) return true;
  return false;
}

}  // namespace intarsia::cli
