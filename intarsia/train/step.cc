#include "intarsia/train/step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "intarsia/optim/clipping.h"

namespace intarsia::train {
namespace {

// One exchange carries everything that ranks tell each other once a step. Doubles hold token counts exactly.
enum Field { kLoss, kTokens, kStop, kPeak, kPss, kDataSeconds, kNumFields };

struct Totals {
  double loss = 0;
  std::int64_t tokens = 0;
};

Totals exchange(comm::Communicator& axis, double loss, std::int64_t tokens, const RankReport& report,
                StepResult& result) {
  const at::Tensor mine = at::zeros({kNumFields}, at::kDouble);
  double* own = mine.mutable_data_ptr<double>();
  own[kLoss] = loss;
  own[kTokens] = static_cast<double>(tokens);
  own[kStop] = report.stop ? 1 : 0;
  own[kPeak] = static_cast<double>(report.peak_bytes);
  own[kPss] = static_cast<double>(report.pss_bytes);
  own[kDataSeconds] = report.data_seconds;
  const at::Tensor all = at::empty({std::int64_t{axis.size()} * kNumFields}, at::kDouble);
  axis.all_gather(all, mine, {"", "step totals"})->wait();
  Totals totals;
  for (std::int64_t rank = 0; rank < axis.size(); ++rank) {
    const double* row = all.const_data_ptr<double>() + rank * kNumFields;
    totals.loss += row[kLoss];
    totals.tokens += static_cast<std::int64_t>(row[kTokens]);
    result.stop = result.stop || row[kStop] > 0;
    result.peak_bytes = std::max(result.peak_bytes, static_cast<std::int64_t>(row[kPeak]));
    result.pss_bytes += static_cast<std::int64_t>(row[kPss]);
    result.data_seconds = std::max(result.data_seconds, row[kDataSeconds]);
  }
  return totals;
}

// A rank without samples runs one row that counts for nothing: all ranks must enter the same units.
data::Batch with_a_row(data::Batch batch) {
  if (batch.input_ids.size(0) > 0) return batch;
  const std::int64_t length = batch.input_ids.size(1);
  batch.input_ids = at::zeros({1, length}, at::kLong);
  batch.labels = at::full({1, length}, data::kNotCounted, at::kLong);
  return batch;
}

}  // namespace

StepResult train_step(shard::Engine& engine, models::Model& model, optim::AdamW& optimizer,
                      std::int64_t num_micro_steps, const std::function<data::Batch(std::int64_t)>& next_batch,
                      const std::function<RankReport()>& report, const GradientHook& on_gradients) {
  const plan::RunPlan& plan = engine.plan();
  double loss = 0;
  std::int64_t tokens = 0;
  engine.start_window();
  for (std::int64_t micro = 0; micro < num_micro_steps; ++micro) {
    const data::Batch batch = with_a_row(next_batch(micro));
    const at::Tensor logits = model.logits(engine.parameters(), &engine, batch.input_ids);
    const at::Tensor loss_sum = models::causal_loss_sum(logits, batch.labels);
    loss += loss_sum.item<double>();
    tokens += batch.num_targets;
    engine.backward(loss_sum);
  }
  engine.finish_window();

  StepResult result;
  const Totals totals = exchange(engine.axis(), loss, tokens, report(), result);
  result.tokens = totals.tokens;
  result.loss = totals.tokens > 0 ? totals.loss / static_cast<double>(totals.tokens) : 0;
  const double average =
      totals.tokens > 0 ? static_cast<double>(plan.loss_divisor()) / static_cast<double>(totals.tokens) : 0;
  const optim::Clipping clipping = optim::clip(engine.gradient_square_sum(), average, plan.gradient_clipping);
  result.grad_norm = clipping.norm;
  result.clip_factor = clipping.factor;
  if (on_gradients) on_gradients(average);

  result.lr = plan.schedule.lr_at_update(optimizer.updates() + 1);
  result.skipped = totals.tokens == 0 || !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (!result.skipped) {
    optimizer.step(result.lr, average * clipping.factor);
    engine.publish();
  }
  return result;
}

}  // namespace intarsia::train
