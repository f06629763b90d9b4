#include "intarsia/plan/report/plan_report.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/plan/unit_layout.h"

namespace intarsia::plan {
namespace {

// The same run in another stage: with its shard groups, and gradients reduced once an update where it is so. hpZ is
// stage 3's alone.
RunPlan in_stage(const RunPlan& run, int stage) {
  if (stage == run.stage) return run;
  RunPlan out = run;
  out.stage = stage;
  out.placement = placement_of_stage(stage);
  out.placement.keep_after_forward = run.placement.keep_after_forward;
  if (run.placement.optimizer != Rest::kSpread) out.placement.replicas = run.placement.replicas;
  if (run.stage >= 2 && run.placement.grads == Rest::kReplicated) out.placement.grads = Rest::kReplicated;
  return out;
}

// Every host writes its share of masters and moments to its own disk; nothing when a checkpoint would take longer than
// failures let it.
std::optional<FailureModel> failures_of(const ClusterSpec& cluster, const TransformerShape& shape, int devices) {
  FailureModel model{.devices = static_cast<double>(devices), .hours_between_failures = cluster.hours_between_failures};
  const double hosts = std::max(1.0, model.devices / cluster.devices_per_host);
  if (cluster.nvme_write > 0) model.checkpoint_seconds = 12 * shape.parameters() / hosts / cluster.nvme_write;
  if (model.checkpoint_seconds >= 2 * 3600 * model.hours_between_failures / model.devices) return std::nullopt;
  return model;
}

}  // namespace

PlanReport make_report(const ReportRequest& request) {
  PlanReport report;
  report.model = request.model;
  report.shape = shape_of(request.config, static_cast<double>(request.run.seq_len));
  report.run = request.run;
  report.local_ranks = request.local_ranks;
  report.limit = request.limit;
  report.margin = request.margin;
  report.refusals = request.refusals;
  report.chosen = request.chosen;
  report.cluster = request.cluster;
  report.space = request.space;
  for (int stage = 0; stage <= 3; ++stage) {
    const RunPlan run = in_stage(request.run, stage);
    StageMemory& row = report.stages.emplace_back();
    row.stage = stage;
    row.replay = replay_step(run, request.config, request.replay);
    row.need = host_need(row.replay, request.local_ranks);
    row.fits = request.limit.bytes == 0 ||
               static_cast<double>(row.need.host) <= (1 - request.margin) * static_cast<double>(request.limit.bytes);
    row.saving =
        1 - static_cast<double>(row.replay.peak.total) / static_cast<double>(report.stages.front().replay.peak.total);
    if (request.cluster) row.seconds = step_seconds(row.replay, run, *request.cluster, request.local_ranks);
  }
  if (request.cluster && request.space) {
    const Workload work{.shape = report.shape, .matrix = matrix_type(request.run.compute_dtype)};
    report.search = search_layouts(*request.cluster, work, *request.space);
    report.ladder = rule_of_thumb(*request.cluster, work, *request.space);
    const std::vector<Candidate>& best = report.search->best;
    if (!best.empty()) report.failures = failures_of(*request.cluster, report.shape, request.space->devices);
    if (!best.empty() && best.front().layout.pipeline > 1) {
      const Layout& layout = best.front().layout;
      report.pipeline = make_pipeline(layout.schedule, layout.pipeline, layout.accumulation, layout.chunks);
      const LayerSeconds layer = layer_seconds(*request.cluster, report.shape,
                                               {.micro_batch = static_cast<double>(layout.micro_batch),
                                                .tensor = static_cast<double>(layout.tensor),
                                                .sequence_parallel = layout.sequence_parallel,
                                                .recomputed = layout.recomputed,
                                                .type = work.matrix},
                                               work.implementation);
      const double layers = report.shape.layers / layout.pipeline / report.pipeline->chunks;
      const double backward = layers * (layer.backward + layer.recompute);
      report.pipeline_run =
          run_pipeline(*report.pipeline,
                       {.forward = layers * layer.forward, .input_grad = backward / 2, .weight_grad = backward / 2});
    }
  }
  return report;
}

}  // namespace intarsia::plan
