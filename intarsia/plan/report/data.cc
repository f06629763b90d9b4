#include <nlohmann/json.hpp>
#include <sstream>

#include "intarsia/base/text.h"
#include "intarsia/plan/report/plan_report.h"

namespace intarsia::plan {
namespace {

using Json = nlohmann::ordered_json;

Json moment_json(const Moment& moment) {
  Json out = {{"at", moment.label}, {"total_bytes", moment.total}};
  if (moment.recomputed) out["recomputed"] = true;
  for (std::size_t i = 0; i < kNumHoldings; ++i)
    out["bytes"][std::string(holding_name(static_cast<Holding>(i)))] = moment.bytes[i];
  return out;
}

Json seconds_json(const StepSeconds& seconds) {
  return {{"total", seconds.total()},           {"matrix", seconds.matrix},     {"attention", seconds.attention},
          {"elementwise", seconds.elementwise}, {"dispatch", seconds.dispatch}, {"traffic", seconds.traffic},
          {"hidden_traffic", seconds.hidden},   {"update", seconds.update}};
}

Json layout_json(const Layout& layout) {
  return {{"stage", layout.stage},
          {"replicate", layout.replicate},
          {"shard", layout.shard},
          {"tensor", layout.tensor},
          {"pipeline", layout.pipeline},
          {"schedule", layout.pipeline > 1 ? Json(schedule_name(layout.schedule)) : Json(nullptr)},
          {"chunks", layout.chunks},
          {"micro_batch", layout.micro_batch},
          {"accumulation", layout.accumulation},
          {"recompute", recomputed_name(layout.recomputed)},
          {"offload", offload_name(layout.offload)}};
}

Json candidate_json(const PlanReport& report, const Candidate& candidate) {
  const std::string missing = not_runnable_here(candidate.layout);
  return {{"layout", layout_json(candidate.layout)},
          {"step_seconds", candidate.time.total()},
          {"memory_bytes", candidate.memory.total()},
          {"host_bytes", candidate.memory.host},
          {"mfu", candidate.speed.mfu},
          {"mfu_full_square", candidate.speed.mfu_full_square},
          {"tokens_per_second_per_device", candidate.speed.tokens_per_second},
          {"slowest_link", bottleneck(*report.cluster, candidate.layout, candidate.time)},
          {"why", candidate.why.empty() ? Json(nullptr) : Json(candidate.why)},
          {"not_runnable_here", missing.empty() ? Json(nullptr) : Json(missing)}};
}

}  // namespace

std::string report_json(const PlanReport& report) {
  const RunPlan& run = report.run;
  Json out = {{"model", report.model},
              {"parameters", run.model.numel()},
              {"flops_per_token", flops_per_token(report.shape, FlopsConvention::kCausalHalf)},
              {"flops_per_token_full_square", flops_per_token(report.shape, FlopsConvention::kFullSquare)},
              {"ranks", run.ranks},
              {"stage", run.stage},
              {"micro_batch", run.micro_batch},
              {"accumulation", run.accumulation},
              {"chosen", report.chosen.empty() ? Json(nullptr) : Json(report.chosen)},
              {"limit_bytes", report.limit.bytes > 0 ? Json(report.limit.bytes) : Json(nullptr)},
              {"limit_from", report.limit.from},
              {"margin", report.margin},
              {"train_refuses", report.refusals}};
  for (const StageMemory& stage : report.stages) {
    Json row = {{"stage", stage.stage},
                {"peak", moment_json(stage.replay.peak)},
                {"between_steps", moment_json(stage.replay.states)},
                {"load_peak_bytes", stage.replay.load_peak},
                {"export_peak_bytes", stage.replay.export_peak},
                {"host_bytes", stage.need.host},
                {"saved", stage.saving},
                {"fits", stage.fits},
                {"seconds", stage.seconds ? seconds_json(*stage.seconds) : Json(nullptr)}};
    if (stage.stage == run.stage)
      for (const Moment& moment : stage.replay.timeline) row["timeline"].push_back(moment_json(moment));
    out["stages"].push_back(std::move(row));
  }
  if (report.search) {
    out["cluster"] = report.cluster->name;
    out["search"] = {{"tried", report.search->tried}, {"fitting", report.search->fitting}, {"best", Json::array()}};
    for (const Candidate& candidate : report.search->best)
      out["search"]["best"].push_back(candidate_json(report, candidate));
    out["search"]["best_runnable_here"] =
        report.search->runnable ? candidate_json(report, *report.search->runnable) : Json(nullptr);
    out["rule_of_thumb"] = report.ladder;
    if (report.failures) {
      const Goodput good = goodput(*report.failures);
      out["failures"] = {{"seconds_between_failures", good.seconds_between_failures},
                         {"checkpoint_seconds", report.failures->checkpoint_seconds},
                         {"young_seconds", good.young_seconds},
                         {"daly_seconds", good.daly_seconds},
                         {"goodput", good.share}};
    }
  }
  return out.dump(2) + "\n";
}

std::string report_csv(const PlanReport& report) {
  std::ostringstream out;
  out << "stage,category,bytes\n";
  for (const StageMemory& stage : report.stages) {
    for (std::size_t i = 0; i < kNumHoldings; ++i)
      out << stage.stage << "," << holding_name(static_cast<Holding>(i)) << "," << stage.replay.peak.bytes[i] << "\n";
    out << stage.stage << ",peak," << stage.replay.peak.total << "\n";
  }
  if (!report.search) return out.str();
  out << "\nstage,replicate,shard,tensor,pipeline,chunks,micro_batch,accumulation,recompute,offload,step_seconds,"
         "memory_bytes,mfu\n";
  for (const Candidate& c : report.search->best)
    out << c.layout.stage << "," << c.layout.replicate << "," << c.layout.shard << "," << c.layout.tensor << ","
        << c.layout.pipeline << "," << c.layout.chunks << "," << c.layout.micro_batch << "," << c.layout.accumulation
        << "," << recomputed_name(c.layout.recomputed) << "," << offload_name(c.layout.offload) << ","
        << shortest(c.time.total()) << "," << shortest(c.memory.total()) << "," << shortest(c.speed.mfu) << "\n";
  return out.str();
}

}  // namespace intarsia::plan
