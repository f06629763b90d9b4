#include "intarsia/train/step.h"

#include <ATen/ATen.h>

namespace intarsia::train {
namespace {

// A rank without samples runs one row that counts for nothing: all ranks must enter the same units.
data::Batch with_a_row(data::Batch batch) {
  if (batch.input_ids.size(0) > 0) return batch;
  const std::int64_t length = batch.input_ids.size(1);
  batch.input_ids = at::zeros({1, length}, at::kLong);
  batch.labels = at::full({1, length}, data::kNotCounted, at::kLong);
  if (batch.positions.defined()) batch.positions = at::zeros({1, length}, at::kLong);
  return batch;
}

}  // namespace

StepResult train_step(shard::Engine& engine, models::Model& model, optim::Optimizer& optimizer,
                      optim::LossScale& loss_scale, std::int64_t num_micro_steps,
                      const std::function<data::Batch(std::int64_t)>& next_batch,
                      const std::function<RankReport()>& report, const GradientHook& on_gradients,
                      StepProfile* profile) {
  const auto phase = [profile](const char* name) {
    if (profile != nullptr) profile->phase(name);
  };
  nn::UnitEvents* events = profile != nullptr ? profile->watch(engine) : &engine;
  optim::WindowSums own;
  phase("data");
  engine.start_window();
  for (std::int64_t micro = 0; micro < num_micro_steps; ++micro) {
    phase("data");
    const data::Batch batch = with_a_row(next_batch(micro));
    model.set_sample_places(batch.places);
    phase("forward");
    const at::Tensor loss_sum =
        model.loss_sum(engine.parameters(), events, batch.input_ids, batch.positions, batch.labels);
    own.losses.push_back(loss_sum.item<double>());
    own.targets += batch.num_targets;
    phase("backward");
    engine.backward(loss_sum, loss_scale.scale());
  }
  model.set_sample_places({});  // what comes between updates drops nothing
  if (profile == nullptr) return optim::finish_step(engine, optimizer, loss_scale, own, report, on_gradients);
  phase("exchange");  // of gradients, where they are reduced at the window's end
  const StepResult result = optim::finish_step(
      engine, optimizer, loss_scale, own,
      [&] {
        phase("totals and norm");
        return report();
      },
      [&](double average) {
        if (on_gradients) on_gradients(average);
        phase("update");
      });
  profile->end_step();
  return result;
}

}  // namespace intarsia::train
