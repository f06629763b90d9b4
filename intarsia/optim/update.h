// The end of a window: totals of all ranks, norm, clipping, update. Serves the training loop and the C++ interface
// alike.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "intarsia/optim/loss_scale.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/shard/engine.h"

namespace intarsia::optim {

// What this rank's micro-steps of a window add up to.
struct WindowSums {
  std::vector<double> losses = {};  // of each micro-step, the sum over its targets
  std::int64_t targets = 0;         // what the loss is divided by: tokens that count, or micro-steps
};

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
  double loss_scale = 1;  // of this step's backward
  bool skipped = false;   // loss or gradient not finite, or no target at all: nothing was updated
  bool bad = false;       // skipped for numbers that are not finite, and a smaller loss scale cannot help
  std::int64_t tokens = 0;
  bool stop = false;            // some rank was asked to stop: the same on all ranks
  std::int64_t peak_bytes = 0;  // largest rank
  std::int64_t pss_bytes = 0;   // all ranks
  double data_seconds = 0;      // largest rank
};

// Called between the gradients' reduction and the update, with what each gradient must be multiplied by.
using GradientHook = std::function<void(double average)>;

// Reduces the window's gradients, makes them means over the targets of all ranks and micro-steps, clips and updates.
// Every rank gets the same result. A loss or a norm that is not finite leaves weights, moments and schedule as they
// are, and moves the loss scale. The backward passes must have used loss_scale.scale(). `report` is asked once, after
// the reduction. Collective: all ranks of the engine's axis.
StepResult finish_step(shard::Engine& engine, Optimizer& optimizer, LossScale& loss_scale, const WindowSums& own,
                       const std::function<RankReport()>& report, const GradientHook& on_gradients = {});

}  // namespace intarsia::optim
