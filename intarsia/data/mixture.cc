#include "intarsia/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::data {
namespace {

struct Pick {
  std::int64_t source = 0;
  std::int64_t index = 0;  // in the source's data set
};

class PickedSamples : public Dataset {
 public:
  PickedSamples(const std::vector<Source>& sources, std::vector<Pick> picks, DataSummary summary)
      : picks_(std::move(picks)), summary_(std::move(summary)) {
    for (const Source& source : sources) {
      datasets_.push_back(source.dataset);
      seq_len_ = std::max(seq_len_, source.dataset->seq_len());
    }
    INTARSIA_CHECK(kConfig,
                   std::all_of(sources.begin(), sources.end(),
                               [&](const Source& s) { return s.dataset->is_isolated() == is_isolated(); }),
                   "--pack isolate: ready samples cannot be mixed with documents");
  }

  std::int64_t num_samples() const override { return static_cast<std::int64_t>(picks_.size()); }
  std::int64_t seq_len() const override { return seq_len_; }
  const DataSummary& summary() const override { return summary_; }
  bool is_isolated() const override { return datasets_.front()->is_isolated(); }

  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    const Pick& pick = pick_of(index);
    const Dataset& dataset = *datasets_[static_cast<std::size_t>(pick.source)];
    dataset.fill(pick.index, ids, labels);
    // Sources of whole documents may be shorter than others.
    std::fill(ids + dataset.seq_len(), ids + seq_len_, ids[dataset.seq_len() - 1]);
    std::fill(labels + dataset.seq_len(), labels + seq_len_, kNotCounted);
  }

  void positions(std::int64_t index, std::int64_t* out) const override {
    const Pick& pick = pick_of(index);
    const Dataset& dataset = *datasets_[static_cast<std::size_t>(pick.source)];
    dataset.positions(pick.index, out);
    for (std::int64_t i = dataset.seq_len(); i < seq_len_; ++i) out[i] = i - dataset.seq_len();
  }

 private:
  const Pick& pick_of(std::int64_t index) const {
    INTARSIA_INVARIANT(index >= 0 && index < num_samples(), "sample ", index, " of ", num_samples());
    return picks_[static_cast<std::size_t>(index)];
  }

  std::vector<std::shared_ptr<const Dataset>> datasets_;
  std::vector<Pick> picks_;
  std::int64_t seq_len_ = 0;
  DataSummary summary_;
};

DataSummary summary_of(const std::vector<Source>& sources) {
  DataSummary out;
  for (const Source& source : sources) out.add(source.dataset->summary());
  return out;
}

std::string fixed(double value) { return shortest(std::round(value * 100) / 100); }

}  // namespace

std::vector<std::int64_t> mixture_counts(const std::vector<Source>& sources) {
  double sum = 0, epoch = 0;
  for (const Source& source : sources) sum += source.weight;
  for (const Source& source : sources)
    epoch = std::max(epoch, static_cast<double>(source.indices.size()) * sum / source.weight);
  INTARSIA_CHECK(kConfig, epoch < 0x1p40, "the weights are so far apart that an epoch would have ", shortest(epoch),
                 " samples; give the small sources more weight");
  std::vector<std::int64_t> counts;
  for (const Source& source : sources) {
    // A product that misses a whole number by rounding alone means that number.
    const auto share = static_cast<std::int64_t>(std::ceil(epoch * source.weight / sum * (1 - 1e-14)));
    counts.push_back(std::max(share, static_cast<std::int64_t>(source.indices.size())));
  }
  return counts;
}

std::unique_ptr<Dataset> mix(std::vector<Source> sources, std::int64_t held_out_samples) {
  DataSummary summary = summary_of(sources);
  summary.held_out_samples = held_out_samples;
  const std::vector<std::int64_t> counts = mixture_counts(sources);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    INTARSIA_CHECK(kData, !sources[i].indices.empty(), sources[i].name, ": no samples to mix");
    total += counts[i];
    if (sources.size() == 1) continue;
    const double seen = static_cast<double>(counts[i]) / static_cast<double>(sources[i].indices.size());
    summary.mixture += concat(i == 0 ? "" : ", ", sources[i].name, " x ", fixed(seen));
  }
  std::vector<std::int64_t> taken(sources.size(), 0);
  std::vector<Pick> picks;
  picks.reserve(static_cast<std::size_t>(total));
  for (std::int64_t k = 0; k < total; ++k) {
    // The source that is furthest behind its share takes the next place.
    std::size_t next = 0;
    double furthest = -1e300;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const double share = static_cast<double>(counts[i]) * static_cast<double>(k + 1) / static_cast<double>(total);
      const double behind = share - static_cast<double>(taken[i]);
      if (taken[i] < counts[i] && behind > furthest) {
        furthest = behind;
        next = i;
      }
    }
    const auto at = static_cast<std::size_t>(taken[next]++) % sources[next].indices.size();
    picks.push_back({static_cast<std::int64_t>(next), sources[next].indices[at]});
  }
  return std::make_unique<PickedSamples>(sources, std::move(picks), std::move(summary));
}

std::unique_ptr<Dataset> join(std::vector<Source> sources) {
  std::vector<Pick> picks;
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (const std::int64_t index : sources[i].indices) picks.push_back({static_cast<std::int64_t>(i), index});
  return std::make_unique<PickedSamples>(sources, std::move(picks), summary_of(sources));
}

}  // namespace intarsia::data
