#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/root_folder.h"

namespace intarsia::checkpoint {
namespace {

// Checks every `stride`-th file, from file `first` on, and that all are there.
Manifest check_complete(const std::string& path, const StepFolder& folder, std::size_t first, std::size_t stride) {
  INTARSIA_CHECK(kFormat, folder.kind != FolderKind::kUnfinished, printable(path), ": its save did not finish");
  Manifest manifest = read_manifest(path);
  for (std::size_t file = 0; file < manifest.files.size(); ++file)
    verify_file(path, manifest.files[file], file % stride == first ? Verify::kHashes : Verify::kSizes);
  return manifest;
}

// The first folder that `check` lets pass. Errors of other ranks (kComm) are no property of a checkpoint.
template <typename Check>
Found first_complete(const std::string& root, const std::vector<StepFolder>& folders, const Check& check) {
  Found found;
  for (const StepFolder& folder : folders) {
    const std::string path = concat(root, "/", folder.name);
    try {
      found.manifest = check(path, folder);
      found.path = path;
      return found;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kComm || error.kind() == ErrorKind::kInternal) throw;
      found.passed_over.push_back({path, error.what()});
    }
  }
  return found;
}

std::string joined_names(const std::vector<StepFolder>& folders) {
  std::string text;
  for (const StepFolder& folder : folders) text += folder.name + "\n";
  return text;
}

}  // namespace

Found find_checkpoint(const std::string& root) {
  return first_complete(root, list_steps(root), [](const std::string& path, const StepFolder& folder) {
    return check_complete(path, folder, 0, 1);
  });
}

Found find_checkpoint(const std::string& root, comm::Communicator& axis) {
  // One rank lists: the folder may look different a moment later, or from another host.
  std::vector<StepFolder> folders;
  all_or_none(axis, "looking for checkpoints", [&] {
    if (axis.rank() == 0) folders = list_steps(root);
  });
  folders = parse_names(broadcast_text(axis, joined_names(folders)));
  return first_complete(root, folders, [&](const std::string& path, const StepFolder& folder) {
    Manifest manifest;
    all_or_none(axis, "the check failed", [&] {
      manifest =
          check_complete(path, folder, static_cast<std::size_t>(axis.rank()), static_cast<std::size_t>(axis.size()));
    });
    return manifest;
  });
}

}  // namespace intarsia::checkpoint
