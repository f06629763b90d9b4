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
// what a run computes (intervals, folders, timeouts) are left out.
std::vector<std::string> changed_keys(const std::string& before, const std::string& now);

}  // namespace intarsia::train
