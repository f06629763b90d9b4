#include "intarsia/optim/update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "intarsia/optim/clipping.h"

namespace intarsia::optim {
namespace {

// One exchange carries everything that ranks tell each other once a step. Doubles hold token counts exactly.
enum Field { kLoss, kTokens, kStop, kPeak, kPss, kDataSeconds, kNumFields };

WindowSums exchange(comm::Communicator& axis, const WindowSums& sums, const RankReport& report, StepResult& result) {
  const at::Tensor mine = at::zeros({kNumFields}, at::kDouble);
  double* own = mine.mutable_data_ptr<double>();
  own[kLoss] = sums.loss;
  own[kTokens] = static_cast<double>(sums.targets);
  own[kStop] = report.stop ? 1 : 0;
  own[kPeak] = static_cast<double>(report.peak_bytes);
  own[kPss] = static_cast<double>(report.pss_bytes);
  own[kDataSeconds] = report.data_seconds;
  const at::Tensor all = at::empty({std::int64_t{axis.size()} * kNumFields}, at::kDouble);
  axis.all_gather(all, mine, {"", "step totals"})->wait();
  WindowSums totals;
  for (std::int64_t rank = 0; rank < axis.size(); ++rank) {
    const double* row = all.const_data_ptr<double>() + rank * kNumFields;
    totals.loss += row[kLoss];
    totals.targets += static_cast<std::int64_t>(row[kTokens]);
    result.stop = result.stop || row[kStop] > 0;
    result.peak_bytes = std::max(result.peak_bytes, static_cast<std::int64_t>(row[kPeak]));
    result.pss_bytes += static_cast<std::int64_t>(row[kPss]);
    result.data_seconds = std::max(result.data_seconds, row[kDataSeconds]);
  }
  return totals;
}

}  // namespace

StepResult finish_step(shard::Engine& engine, AdamW& optimizer, const WindowSums& own,
                       const std::function<RankReport()>& report, const GradientHook& on_gradients) {
  const plan::RunPlan& plan = engine.plan();
  engine.finish_window();

  StepResult result;
  const WindowSums totals = exchange(engine.axis(), own, report(), result);
  result.tokens = totals.targets;
  result.loss = totals.targets > 0 ? totals.loss / static_cast<double>(totals.targets) : 0;
  const double average =
      totals.targets > 0 ? static_cast<double>(plan.loss_divisor()) / static_cast<double>(totals.targets) : 0;
  const Clipping clipping = clip(engine.gradient_square_sum(), average, plan.gradient_clipping);
  result.grad_norm = clipping.norm;
  result.clip_factor = clipping.factor;
  if (on_gradients) on_gradients(average);

  result.lr = plan.schedule.lr_at_update(optimizer.updates() + 1);
  result.skipped = totals.targets == 0 || !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (!result.skipped) {
    optimizer.step(result.lr, average * clipping.factor);
    engine.publish();
  }
  return result;
}

}  // namespace intarsia::optim
