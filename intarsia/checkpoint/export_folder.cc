#include "intarsia/checkpoint/export_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/root_folder.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kCopied = {"tokenizer.json", "tokenizer_config.json",
                                                     "special_tokens_map.json", "generation_config.json",
                                                     "chat_template.jinja"};

bool written_by_export(const std::string& name) {
  return std::ranges::find(kCopied, name) != kCopied.end() || name == "config.json" || name == "adapter_config.json" ||
         name.starts_with("adapter_model.safetensors") || name == "model.safetensors.index.json" ||
         (name.starts_with("model") && name.ends_with(".safetensors")) ||
         (name.starts_with("model") && name.ends_with(".safetensors.partial"));
}

void copy_file(const std::string& from, const std::string& to) {
  const io::Fd source = io::open_read(from);
  const io::Fd target = io::create_exclusive(to);
  std::uint64_t left = io::file_size(source, from);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(left, 1 << 20));
  for (std::uint64_t at = 0; left > 0;) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(left, buffer.size()));
    io::read_exact_at(source, from, at, part);
    io::write_all(target, to, part);
    at += part.size();
    left -= part.size();
  }
  io::fsync_file(target, to);
}

// Removes an export, and the folder unless something else is in it. False: something else is.
bool remove_export(const std::string& path) {
  std::vector<fs::path> files;
  bool all = true;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (!entry.is_directory() && written_by_export(entry.path().filename().string())) {
      files.push_back(entry.path());
    } else {
      all = false;
    }
  }
  for (const fs::path& file : files) fs::remove(file);
  if (all) fs::remove(path);
  return all;
}

}  // namespace

ExportFolder::ExportFolder(const std::string& directory, const std::string& copy_from) : nonce_(draw_nonce()) {
  fs::path name(directory);
  if (!name.has_filename()) name = name.parent_path();  // "model/"
  directory_ = name.string();
  path_ = concat(directory_, ".wip-", nonce_);
  std::error_code error;
  INTARSIA_CHECK(kUsage, copy_from.empty() || !fs::equivalent(directory_, copy_from, error), printable(directory),
                 " is the folder that the model came from; choose another for the export");
  error.clear();
  fs::create_directories(io::parent_directory(directory_), error);
  if (error) io::fail_io("create the folder", io::parent_directory(directory_), error.value());
  if (!fs::create_directory(path_, error)) io::fail_io("create the folder", path_, error ? error.value() : EEXIST);
  try {
    for (const std::string_view file : kCopied) {
      const std::string source = concat(copy_from, "/", file);
      if (!copy_from.empty() && fs::exists(source, error)) copy_file(source, concat(path_, "/", file));
    }
  } catch (...) {
    fs::remove_all(path_, error);
    throw;
  }
}

ExportFolder::~ExportFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(path_, ignored);  // created by this object, under a name that nobody else draws
}

void ExportFolder::commit() {
  io::fsync_directory(path_);
  const std::string old = concat(directory_, ".old-", nonce_);
  const bool replaces = fs::exists(directory_);
  if (replaces) io::rename_path(directory_, old);
  try {
    io::rename_path(path_, directory_);
  } catch (const Error&) {
    if (replaces) io::rename_path(old, directory_);
    throw;
  }
  committed_ = true;
  io::fsync_directory(io::parent_directory(directory_));
  if (replaces && !remove_export(old))
    log_warning(concat("files that are no part of an export were in ", printable(directory_), "; they are in ",
                       printable(old), " now"));
}

}  // namespace intarsia::checkpoint
