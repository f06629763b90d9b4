// One optimizer step: micro-steps, then optim::finish_step.
#pragma once

#include <functional>

#include "intarsia/data/batch.h"
#include "intarsia/models/model.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/optim/update.h"
#include "intarsia/shard/engine.h"
#include "intarsia/train/profile.h"

namespace intarsia::train {

using optim::GradientHook;
using optim::RankReport;
using optim::StepResult;

// Loss and gradient are means over the real target tokens of the whole window (all micro-steps, all ranks). Every rank
// gets the same result. A loss or a norm that is not finite leaves weights, moments and schedule as they are.
// `profile`: hears of each phase and unit; null: nobody does.
// Collective: all ranks of the engine's axis, with equally many micro-batches.
StepResult train_step(shard::Engine& engine, models::Model& model, optim::Optimizer& optimizer,
                      optim::LossScale& loss_scale, std::int64_t num_micro_steps,
                      const std::function<data::Batch(std::int64_t)>& next_batch,
                      const std::function<RankReport()>& report, const GradientHook& on_gradients = {},
                      StepProfile* profile = nullptr);

}  // namespace intarsia::train
