#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/root_folder.h"

namespace intarsia::checkpoint {

Found find_checkpoint(const std::string& root) {
  Found found;
  for (const StepFolder& folder : list_steps(root)) {
    const std::string path = concat(root, "/", folder.name);
    try {
      INTARSIA_CHECK(kFormat, folder.kind != FolderKind::kUnfinished, printable(path), ": its save did not finish");
      Manifest manifest = read_manifest(path);
      for (const StoredFile& file : manifest.files) verify_file(path, file, Verify::kHashes);
      found.manifest = std::move(manifest);
      found.path = path;
      return found;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
      found.passed_over.push_back({path, error.what()});
    }
  }
  return found;
}

}  // namespace intarsia::checkpoint
