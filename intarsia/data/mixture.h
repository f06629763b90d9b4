// Several sources as one data set, and parts of one. Internal to data; open_dataset() makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "intarsia/data/dataset.h"

namespace intarsia::data {

// Samples of a source, in the order in which they are taken.
struct Source {
  std::shared_ptr<const Dataset> dataset;
  std::vector<std::int64_t> indices;
  double weight = 1;
  std::string name{};
};

// How many samples of each source an epoch has: in the proportion of the weights, no fewer than the source has.
std::vector<std::int64_t> mixture_counts(const std::vector<Source>& sources);

// Sources by their weights, evenly spread: after any number of samples each source has had its share, give or take one.
// Where a source must give more samples than it has, it begins again. `held_out_samples` is for the summary.
// Memory: 16 bytes a sample.
std::unique_ptr<Dataset> mix(std::vector<Source> sources, std::int64_t held_out_samples = 0);

// Sources one after another, each sample once, whatever their weights.
std::unique_ptr<Dataset> join(std::vector<Source> sources);

}  // namespace intarsia::data
