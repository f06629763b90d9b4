// RUN: the directory of a run.
#pragma once

#include <string>
#include <vector>

namespace intarsia::train {

// The first of runs/NAME-1, runs/NAME-2, ... that does not exist yet.
std::string new_run_folder(const std::string& name);

// Creates RUN and its subfolders. Errors: kIo when it cannot be written.
void make_run_folder(const std::string& run);

// Keys (as paths) whose values differ between two JSON texts; what only one has differs too. Keys that cannot change
// what a run computes (intervals, folders, timeouts) are left out; the number of steps too, unless `steps_matter`
// because the schedule's shape follows it; and, in reproducible runs (not `layout_matters`), stage, groups and how the
// batch is cut.
std::vector<std::string> changed_keys(const std::string& before, const std::string& now, bool steps_matter,
                                      bool layout_matters);

// Held by the one run that writes in RUN, until the object or the process ends. File systems without locks let it pass.
class RunLock {
 public:
  // Errors: kUsage when another process holds it; kIo when RUN cannot be opened.
  explicit RunLock(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_;
};

}  // namespace intarsia::train
