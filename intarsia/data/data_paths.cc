#include "intarsia/data/data_paths.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/formats/documents.h"

namespace intarsia::data {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

FileKind kind_of(const std::string& path) {
  if (path.ends_with(".safetensors")) return FileKind::kSamples;
  if (path.ends_with(".bin")) return FileKind::kTokens;
  return FileKind::kDocuments;
}

std::string_view word(FileKind kind) {
  switch (kind) {
    case FileKind::kSamples:
      return "ready samples (.safetensors)";
    case FileKind::kTokens:
      return "tokens (.bin)";
    case FileKind::kDocuments:
      return "documents (text or JSONL)";
  }
  return "";
}

// Whether `path` ends in a weight, as "corpus.txt:0.7" does.
bool has_weight(const std::string& path) {
  const std::size_t colon = path.rfind(':');
  return colon != std::string::npos && colon + 1 < path.size() &&
         path.find_first_not_of("0123456789.", colon + 1) == std::string::npos;
}

std::vector<std::string> expand(const std::string& path) {
  if (exists(path)) {
    INTARSIA_CHECK(kUsage, !fs::is_directory(path), "--data ", path, ": is a folder; name its files, for example ",
                   path, "/*.txt");
    return {path};  // also where the name itself holds a star or a colon
  }
  INTARSIA_CHECK(kUnsupported, !has_weight(path), "--data ", path,
                 ": weights (FILE:WEIGHT) are not built yet; name the file without the weight");
  return formats::expand_paths({path});
}

}  // namespace

DataFiles find_data_files(const std::vector<std::string>& paths) {
  INTARSIA_CHECK(kUsage, !paths.empty(), "no data; name files with --data");
  DataFiles files;
  for (const std::string& path : paths) {
    for (std::string& file : expand(path)) {
      const FileKind kind = kind_of(file);
      if (files.paths.empty()) files.kind = kind;
      INTARSIA_CHECK(kConfig, kind == files.kind, "--data: ", files.paths.front(), " holds ", word(files.kind), " and ",
                     file, " ", word(kind), "; files of one kind only can be joined");
      files.paths.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace intarsia::data
