// The folder of an export that is being written. Internal to checkpoint.
#pragma once

#include <string>

namespace intarsia::checkpoint {

// Files are written to DIRECTORY.wip-NONCE, which becomes DIRECTORY in commit(). The destructor removes what was not
// committed.
class ExportFolder {
 public:
  // Creates the folder (and its parents) and copies the tokenizer's and the generation's files from `copy_from`, if
  // they are there (empty: none). Errors: kIo; kUsage when both are one folder.
  ExportFolder(const std::string& directory, const std::string& copy_from);
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  const std::string& path() const { return path_; }

  // Gives it its name. A folder that has it is moved aside; then what exports write is removed from it, and it too
  // unless foreign files are left, which a warning names. Errors: kIo.
  void commit();

 private:
  std::string directory_;
  std::string nonce_;
  std::string path_;
  bool committed_ = false;
};

}  // namespace intarsia::checkpoint
