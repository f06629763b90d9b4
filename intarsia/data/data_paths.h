// What the paths given as data stand for. Internal to data.
#pragma once

#include <string>
#include <vector>

namespace intarsia::data {

enum class FileKind { kSamples, kTokens, kDocuments };

struct DataFiles {
  FileKind kind = FileKind::kDocuments;
  std::vector<std::string> paths;  // globs expanded, each glob's files in the order of their names
};

// Errors: kUsage for no paths, or a path or glob that matches nothing; kUnsupported for weights; kConfig for files of
// several kinds.
DataFiles find_data_files(const std::vector<std::string>& paths);

}  // namespace intarsia::data
