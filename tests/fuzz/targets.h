// The readers of untrusted bytes that are fuzzed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace intarsia::fuzz {

struct Target {
  std::string name;
  // Runs a reader over the bytes. It may throw intarsia::Error and nothing else.
  std::function<void(const std::string& bytes)> run;
  std::vector<std::string> words = {};    // of the format
  std::vector<std::string> seeds = {};    // made here; beside the files
  std::vector<std::string> files = {};    // seeds: files and folders of the repository, the small files in them
  std::vector<std::string> endings = {};  // of the files in folders
  // Of a number of inputs for all targets, this one's share.
  double share = 1;
};

std::vector<Target> make_targets();

}  // namespace intarsia::fuzz
