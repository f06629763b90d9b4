// What the paths given as data stand for. Internal to data.
#pragma once

#include <string>
#include <vector>

namespace intarsia::data {

enum class FileKind { kSamples, kTokens, kDocuments };

// Files that are one after another, of one kind.
struct DataFiles {
  FileKind kind = FileKind::kDocuments;
  std::vector<std::string> paths{};  // globs expanded, each glob's files in the order of their names
  double weight = 0;                 // share of the samples, as given; 0: none was
  std::string given{};               // the word that named them, without its weight
};

// Without weights all files are one source. With them each path given (a glob may be several files) is a source of its
// own, and they may be of different kinds.
// Errors: kUsage for no paths, a path or glob that matches nothing, and weights on some paths only or not above 0;
// kConfig for files of several kinds in one source.
std::vector<DataFiles> find_data_files(const std::vector<std::string>& paths);

}  // namespace intarsia::data
