// Which sample comes when, and on which rank. Without state but one integer: the position, the number of samples that
// the run has used since its start.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "intarsia/plan/placement.h"

namespace intarsia::data {

// What happens to the samples at an epoch's end that do not fill a window (the global batch of one optimizer update).
enum class LastWindow {
  kCarry,  // the window goes on with the next epoch's first samples; only the run's last window may be short
  kFlush,  // the short window is an update of its own
  kDrop,   // its samples are left out in this epoch
};

struct SamplerOptions {
  std::int64_t num_samples = 0;
  std::uint64_t seed = 42;
  bool shuffle = true;
  std::int64_t micro_batch = 1;   // samples of one rank in one micro-step
  std::int64_t accumulation = 1;  // micro-steps of a full window
  int ranks = 1;                  // data-parallel
  LastWindow last_window = LastWindow::kCarry;
  // In reproducible mode: which logical micro-batch each (rank, micro-step) runs.
  std::optional<plan::LogicalOrder> logical = {};
  double epochs = 0;  // where the data end, the last sample rounded up; 0: never, the number of updates ends the run

  std::int64_t global_batch() const { return micro_batch * accumulation * ranks; }
};

// The samples of one optimizer update: positions [begin, end). `end` is the position to go on from.
struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t num_samples() const { return end - begin; }
};

// A sample of the data set in one pass over it.
struct SamplePlace {
  std::int64_t epoch = 0;  // counted from 0
  std::int64_t index = 0;  // in the data set
};

// Samples [begin, end) of a whole.
struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

// The part of `rank` when `total` samples are cut into one contiguous piece a rank, the first ranks one sample longer
// where it does not divide: 5 samples on 4 ranks are 2, 1, 1, 1.
Share share_of(std::int64_t total, std::int64_t ranks, std::int64_t rank);

// Updates that the options' `epochs` give; next_window() yields exactly as many from position 0.
// Errors: as Sampler's; kConfig unless epochs is above 0.
std::int64_t planned_updates(const SamplerOptions& options);

// The order of the data. The window after a position, and the samples in it, do not depend on the number of ranks as
// long as the global batch is the same. With shuffle off, sampling endlessly or in whole epochs, full window k holds
// samples k*G to (k+1)*G - 1 of the epochs laid end to end (G = global batch).
//
// A window of n samples is cut into one contiguous share a rank (share_of), and each share into micro-steps of
// micro_batch samples; a full window gives each rank `accumulation` full micro-steps. In a short one all ranks make the
// same number of micro-steps, the last of which may be smaller or empty on some ranks.
//
// With `logical` a window is cut into one contiguous share a logical micro-batch, whatever the number of ranks, and all
// ranks make `accumulation` micro-steps also in a short window, some of them empty.
// Threads: const and without hidden state; any thread may ask.
class Sampler {
 public:
  // Errors: kData without samples; kConfig where a number is below 1, epochs is negative, or kDrop leaves no window at
  // all because the data have fewer samples than a global batch.
  explicit Sampler(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }

  // Which sample stands at a position.
  SamplePlace sample_at(std::int64_t position) const;

  // The window that begins at a position or, with kDrop, at the next epoch where the rest of this one is too short.
  // Nothing when the epochs are over.
  std::optional<Window> next_window(std::int64_t position) const;

  // Micro-steps of every rank in a window: `accumulation` for a full one, fewer for a short one.
  std::int64_t micro_steps(const Window& window) const;

  // Positions of the samples of (rank, micro_step) in a window: micro_batch of them in a full window, fewer or none in
  // a short one. Errors: kInternal for a rank or micro-step outside.
  std::vector<std::int64_t> positions_of(const Window& window, int rank, std::int64_t micro_step) const;
  // Their indices in the data set.
  std::vector<std::int64_t> samples_of(const Window& window, int rank, std::int64_t micro_step) const;

 private:
  SamplerOptions options_;
  std::int64_t end_;  // position where the epochs are over
};

// How an evaluation is cut: micro-batch j of the data set, in order, is step j / ranks of rank j % ranks. Each sample
// is used once and all ranks make steps() steps; 7 micro-batches on 2 ranks are 4 and 3, and the fourth of the second
// rank is empty.
struct EvalShares {
  std::int64_t num_samples = 0;
  int ranks = 1;
  std::int64_t micro_batch = 1;

  std::int64_t steps() const;
  // Data set indices; the last batch may be smaller, or empty.
  std::vector<std::int64_t> samples_of(int rank, std::int64_t step) const;
};

// Errors: kInternal unless ranks and micro_batch are above 0.
EvalShares eval_shares(std::int64_t num_samples, int ranks, std::int64_t micro_batch);

}  // namespace intarsia::data
