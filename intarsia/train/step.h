// One optimizer step: micro-steps, reduction, norm, clipping, update.
#pragma once

#include <functional>
#include <vector>

#include "intarsia/data/batch.h"
#include "intarsia/models/model.h"
#include "intarsia/optim/adamw.h"
#include "intarsia/shard/engine.h"

namespace intarsia::train {

// What a rank tells the others once a step, beside its loss. Sums and maxima are over ranks.
struct RankReport {
  bool stop = false;            // this rank was asked to stop
  std::int64_t peak_bytes = 0;  // by the meter
  std::int64_t pss_bytes = 0;   // 0: not measured in this step
  double data_seconds = 0;
};

struct StepResult {
  double loss = 0;       // mean over the window's target tokens, all ranks
  double grad_norm = 0;  // of the averaged gradient, before clipping
  double clip_factor = 1;
  double lr = 0;
  bool skipped = false;  // loss or gradient not finite, or no target at all: nothing was updated
  std::int64_t tokens = 0;
  bool stop = false;            // some rank was asked to stop: the same on all ranks
  std::int64_t peak_bytes = 0;  // largest rank
  std::int64_t pss_bytes = 0;   // all ranks
  double data_seconds = 0;      // largest rank
};

// Called between the gradients' reduction and the update, with what each gradient must be multiplied by.
using GradientHook = std::function<void(double average)>;

// Loss and gradient are means over the real target tokens of the whole window (all micro-steps, all ranks). Every rank
// gets the same result. A loss or a norm that is not finite leaves weights, moments and schedule as they are.
// Collective: all ranks of the engine's axis, with equally many micro-batches.
StepResult train_step(shard::Engine& engine, models::Model& model, optim::AdamW& optimizer,
                      std::int64_t num_micro_steps, const std::function<data::Batch(std::int64_t)>& next_batch,
                      const std::function<RankReport()>& report, const GradientHook& on_gradients = {});

}  // namespace intarsia::train
