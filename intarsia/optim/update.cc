#include "intarsia/optim/update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "intarsia/optim/clipping.h"

namespace intarsia::optim {
namespace {

// One exchange carries everything that ranks tell each other once a step. Doubles hold token counts exactly.
enum Field { kTokens, kStop, kPeak, kPss, kDataSeconds, kNumFields };

// The loss is added in the order of the logical micro-batches, so that it does not depend on who ran which.
double exchange(const shard::Engine& engine, const WindowSums& sums, const RankReport& report, StepResult& result) {
  comm::Communicator& axis = engine.world();
  const auto steps = static_cast<std::int64_t>(sums.losses.size());
  const std::int64_t row_size = kNumFields + steps;
  const at::Tensor mine = at::zeros({row_size}, at::kDouble);
  double* own = mine.mutable_data_ptr<double>();
  std::copy(sums.losses.begin(), sums.losses.end(), own + kNumFields);
  own[kTokens] = static_cast<double>(sums.targets);
  own[kStop] = report.stop ? 1 : 0;
  own[kPeak] = static_cast<double>(report.peak_bytes);
  own[kPss] = static_cast<double>(report.pss_bytes);
  own[kDataSeconds] = report.data_seconds;
  const at::Tensor all = at::empty({axis.size() * row_size}, at::kDouble);
  axis.all_gather(all, mine, {"", "step totals"})->wait();
  plan::LogicalOrder order = engine.plan().logical_order();
  order.steps = steps;  // a short window has fewer
  std::vector<double> losses(static_cast<std::size_t>(order.count()));
  for (int rank = 0; rank < axis.size(); ++rank) {
    const double* row = all.const_data_ptr<double>() + rank * row_size;
    for (std::int64_t step = 0; step < steps; ++step)
      losses[static_cast<std::size_t>(order.index(rank, step))] = row[kNumFields + step];
    result.tokens += static_cast<std::int64_t>(row[kTokens]);
    result.stop = result.stop || row[kStop] > 0;
    result.peak_bytes = std::max(result.peak_bytes, static_cast<std::int64_t>(row[kPeak]));
    result.pss_bytes += static_cast<std::int64_t>(row[kPss]);
    result.data_seconds = std::max(result.data_seconds, row[kDataSeconds]);
  }
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace

StepResult finish_step(shard::Engine& engine, Optimizer& optimizer, LossScale& loss_scale, const WindowSums& own,
                       const std::function<RankReport()>& report, const GradientHook& on_gradients) {
  const plan::RunPlan& plan = engine.plan();
  engine.finish_window();

  StepResult result;
  const double loss_sum = exchange(engine, own, report(), result);
  const auto targets = static_cast<double>(result.tokens);
  result.loss = result.tokens > 0 ? loss_sum / targets : 0;
  result.loss_scale = loss_scale.scale();
  const double average =
      result.tokens > 0 ? static_cast<double>(plan.loss_divisor()) / (result.loss_scale * targets) : 0;
  const Clipping clipping = clip(engine.gradient_square_sum(), average, plan.gradient_clipping);
  result.grad_norm = clipping.norm;
  result.clip_factor = clipping.factor;
  if (on_gradients) on_gradients(average);

  result.lr = plan.schedule.lr_at_update(optimizer.updates() + 1);
  const bool overflow = !std::isfinite(result.grad_norm);
  const bool scale_can_help = loss_scale.update(overflow);
  result.skipped = result.tokens == 0 || overflow || !std::isfinite(result.loss);
  result.bad = !std::isfinite(result.loss) || (overflow && !scale_can_help);
  if (!result.skipped) {
    optimizer.step(result.lr, average * clipping.factor);
    engine.publish();
  }
  return result;
}

}  // namespace intarsia::optim
