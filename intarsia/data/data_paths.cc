#include "intarsia/data/data_paths.h"

#include <charconv>
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
  if (path.ends_with(".bin") || path.ends_with(".idx")) return FileKind::kTokens;
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

// A path as given, and the weight behind its last colon: "corpus.txt:0.7".
struct Given {
  std::string path;
  double weight = 0;
};

Given split_weight(const std::string& text) {
  // Also where the name itself holds a colon.
  if (exists(text)) return {text};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() ||
      text.find_first_not_of("0123456789.", colon + 1) != std::string::npos) {
    return {text};
  }
  double weight = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, weight);
  INTARSIA_CHECK(kUsage, error == std::errc() && stop == end && weight > 0 && weight < 1e9, "--data ", text,
                 ": the weight behind the colon must be a number above 0");
  return {text.substr(0, colon), weight};
}

std::vector<std::string> expand(const std::string& path) {
  if (!exists(path)) return formats::expand_paths({path});
  INTARSIA_CHECK(kUsage, !fs::is_directory(path), "--data ", path, ": is a folder; name its files, for example ", path,
                 "/*.txt");
  return {path};  // also where the name itself holds a star
}

void append(DataFiles& files, const std::string& path) {
  for (std::string& file : expand(path)) {
    const FileKind kind = kind_of(file);
    if (files.paths.empty()) files.kind = kind;
    INTARSIA_CHECK(kConfig, kind == files.kind, "--data: ", files.paths.front(), " holds ", word(files.kind), " and ",
                   file, " ", word(kind), "; files of one kind only can be joined");
    files.paths.push_back(std::move(file));
  }
}

}  // namespace

std::vector<DataFiles> find_data_files(const std::vector<std::string>& paths) {
  INTARSIA_CHECK(kUsage, !paths.empty(), "no data; name files with --data");
  std::vector<DataFiles> sources;
  for (const std::string& text : paths) {
    const Given given = split_weight(text);
    INTARSIA_CHECK(kUsage, sources.empty() || (given.weight > 0) == (sources.back().weight > 0), "--data ", text,
                   ": either every file has a weight (FILE:WEIGHT) or none");
    if (sources.empty() || given.weight > 0) sources.push_back({.weight = given.weight, .given = given.path});
    append(sources.back(), given.path);
  }
  return sources;
}

}  // namespace intarsia::data
