#include "intarsia/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/data/permutation.h"

namespace intarsia::data {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

void check(const SamplerOptions& options) {
  INTARSIA_CHECK(kData, options.num_samples > 0, "the training data have no samples; at least one is needed");
  INTARSIA_CHECK(kConfig, options.micro_batch > 0 && options.accumulation > 0 && options.ranks > 0, "micro-batch ",
                 options.micro_batch, ", accumulation ", options.accumulation, ", ranks ", options.ranks,
                 ": each must be at least 1");
  INTARSIA_CHECK(kConfig, options.epochs >= 0 && options.epochs * static_cast<double>(options.num_samples) < 0x1p62,
                 "epochs ", shortest(options.epochs), ": must be 0 or more, and finite");
}

// The position where the epochs are over. A product that misses a whole number by rounding alone means that number.
std::int64_t end_of(const SamplerOptions& options) {
  if (options.epochs == 0) return kNoEnd;
  const double exact = options.epochs * static_cast<double>(options.num_samples);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(exact * (1 - 1e-14))));
}

std::int64_t updates_until(const SamplerOptions& options, std::int64_t end) {
  const std::int64_t batch = options.global_batch(), n = options.num_samples;
  switch (options.last_window) {
    case LastWindow::kCarry:
      return ceil_div(end, batch);
    case LastWindow::kFlush:
      return end / n * ceil_div(n, batch) + ceil_div(end % n, batch);
    case LastWindow::kDrop:
      return end / n * (n / batch) + end % n / batch;
  }
  fail(ErrorKind::kInternal, "unknown policy of the last window");
}

}  // namespace

Share share_of(std::int64_t total, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t base = total / ranks, longer = total % ranks;
  const std::int64_t begin = rank * base + std::min<std::int64_t>(rank, longer);
  return {begin, begin + base + (rank < longer ? 1 : 0)};
}

std::int64_t planned_updates(const SamplerOptions& options) {
  INTARSIA_CHECK(kConfig, options.epochs > 0, "epochs ", shortest(options.epochs),
                 ": must be above 0 where no number of updates is given");
  const Sampler checked(options);
  return updates_until(options, end_of(options));
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options);
  end_ = end_of(options);
  INTARSIA_CHECK(
      kConfig,
      options.last_window != LastWindow::kDrop || updates_until(options, std::min(end_, options.num_samples)) > 0,
      "last_window drop leaves nothing to train on: ", options.num_samples, " samples",
      end_ < options.num_samples ? concat(" (", end_, " of them in ", shortest(options.epochs), " epochs)") : "",
      ", but a full window needs ", options.global_batch(), " (micro-batch ", options.micro_batch, " x accumulation ",
      options.accumulation, " x ", options.ranks,
      " ranks); use more data, a smaller batch, or last_window carry or flush");
}

SamplePlace Sampler::sample_at(std::int64_t position) const {
  INTARSIA_INVARIANT(position >= 0, "position ", position);
  const std::int64_t n = options_.num_samples;
  SamplePlace place{position / n, position % n};
  if (options_.shuffle) place.index = shuffled_index(options_.seed, place.epoch, place.index, n);
  return place;
}

std::optional<Window> Sampler::next_window(std::int64_t position) const {
  INTARSIA_INVARIANT(position >= 0, "position ", position);
  const std::int64_t batch = options_.global_batch(), n = options_.num_samples;
  if (position >= end_) return std::nullopt;
  Window window{position, position + batch};
  if (options_.last_window != LastWindow::kCarry) {
    const std::int64_t epoch_end = (position / n + 1) * n;
    if (window.end > epoch_end) {
      window = options_.last_window == LastWindow::kFlush ? Window{position, epoch_end}
                                                          : Window{epoch_end, epoch_end + batch};
    }
  }
  if (window.end > end_) {
    // The run ends inside the window: nothing is lost, unless short windows are dropped.
    if (options_.last_window == LastWindow::kDrop) return std::nullopt;
    window.end = end_;
  }
  return window;
}

std::int64_t Sampler::micro_steps(const Window& window) const {
  if (options_.logical) return options_.accumulation;
  return ceil_div(share_of(window.num_samples(), options_.ranks, 0).size(), options_.micro_batch);
}

std::vector<std::int64_t> Sampler::positions_of(const Window& window, int rank, std::int64_t micro_step) const {
  INTARSIA_INVARIANT(rank >= 0 && rank < options_.ranks, "rank ", rank, " of ", options_.ranks);
  INTARSIA_INVARIANT(micro_step >= 0 && micro_step < micro_steps(window), "micro-step ", micro_step, " of ",
                     micro_steps(window));
  Share share;
  if (options_.logical) {
    share = share_of(window.num_samples(), options_.logical->count(), options_.logical->index(rank, micro_step));
  } else {
    const Share of_rank = share_of(window.num_samples(), options_.ranks, rank);
    share.begin = std::min(of_rank.begin + micro_step * options_.micro_batch, of_rank.end);
    share.end = std::min(share.begin + options_.micro_batch, of_rank.end);
  }
  std::vector<std::int64_t> positions;
  for (std::int64_t i = share.begin; i < share.end; ++i) positions.push_back(window.begin + i);
  return positions;
}

std::vector<std::int64_t> Sampler::samples_of(const Window& window, int rank, std::int64_t micro_step) const {
  std::vector<std::int64_t> indices = positions_of(window, rank, micro_step);
  for (std::int64_t& index : indices) index = sample_at(index).index;
  return indices;
}

EvalShares eval_shares(std::int64_t num_samples, int ranks, std::int64_t micro_batch) {
  INTARSIA_INVARIANT(num_samples >= 0 && ranks > 0 && micro_batch > 0, "evaluation of ", num_samples, " samples on ",
                     ranks, " ranks with micro-batch ", micro_batch);
  return {num_samples, ranks, micro_batch};
}

std::int64_t EvalShares::steps() const { return ceil_div(ceil_div(num_samples, micro_batch), ranks); }

std::vector<std::int64_t> EvalShares::samples_of(int rank, std::int64_t step) const {
  INTARSIA_INVARIANT(rank >= 0 && rank < ranks && step >= 0 && step < steps(), "step ", step, " of rank ", rank);
  const std::int64_t begin = (step * ranks + rank) * micro_batch;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = begin; i < std::min(begin + micro_batch, num_samples); ++i) indices.push_back(i);
  return indices;
}

}  // namespace intarsia::data
