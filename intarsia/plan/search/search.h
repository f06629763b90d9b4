// All layouts of a model on a number of devices, and the best few with the reasons why others lose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/plan/search/layout.h"

namespace intarsia::plan {

// Bounds of the search; what is set is held fixed.
struct SearchSpace {
  int devices = 1;
  std::int64_t global_batch = 1;  // samples an update
  double margin = 0.05;           // share of a device's memory that must stay free
  std::optional<int> stage = {};
  std::optional<int> tensor = {};
  std::optional<int> pipeline = {};
  std::optional<int> replicate = {};
  std::optional<int> micro_batch = {};
  std::optional<Recomputed> recomputed = {};
  std::optional<Offload> offload = {};
  std::size_t keep = 10;  // best layouts that are returned
};

struct Candidate {
  Layout layout;
  LayoutMemory memory;
  LayoutTime time;
  Throughput speed;
  std::string why;  // of those after the best: what costs them the difference
};

struct SearchResult {
  std::int64_t tried = 0;
  std::int64_t fitting = 0;
  std::vector<Candidate> best;        // fastest first; empty: nothing fits
  std::optional<Candidate> runnable;  // the best that `intarsia train` runs today
  std::optional<Candidate> smallest;  // least memory of all, when nothing fits
  std::vector<Candidate> frontier;    // for pictures: no other one is both smaller and faster
};

// Tries every layout whose axes divide the devices and whose samples divide the global batch. What its own count says
// does not fit (total above the device's memory less the margin, host memory likewise) is never among `best`.
SearchResult search_layouts(const ClusterSpec& cluster, const Workload& work, const SearchSpace& space);

// "does not run here yet: pipeline, tensor parallel", or empty: `intarsia train` runs such a layout today.
std::string not_runnable_here(const Layout& layout);

// The rule of thumb with its numbers: the first step of the ladder (stage 2, stage 3, recomputation, optimizer offload,
// parameters too, NVMe) that fits on the devices with data parallelism only. One line a step.
std::vector<std::string> rule_of_thumb(const ClusterSpec& cluster, const Workload& work, const SearchSpace& space);

}  // namespace intarsia::plan
