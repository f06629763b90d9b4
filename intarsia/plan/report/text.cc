#include "intarsia/base/text.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/plan/report/plan_report.h"

namespace intarsia::plan {
namespace {

constexpr double kMiB = 1024.0 * 1024;

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string count(double value) {
  if (value >= 1e12) return fixed(value / 1e12, 2) + "T";
  if (value >= 1e9) return fixed(value / 1e9, 2) + "B";
  if (value >= 1e6) return fixed(value / 1e6, 1) + "M";
  return fixed(value, 0);
}

std::string pad(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string duration(double seconds) {
  return seconds < 1 ? fixed(1000 * seconds, 1) + " ms" : fixed(seconds, 2) + " s";
}

void write_head(std::ostream& out, const PlanReport& report) {
  const RunPlan& run = report.run;
  out << "model     " << report.model << ": " << count(static_cast<double>(run.model.numel())) << " parameters, "
      << static_cast<std::int64_t>(report.shape.layers) << " layers, hidden " << run.model.hidden_size << "\n"
      << "          flops a token " << count(flops_per_token(report.shape, FlopsConvention::kCausalHalf))
      << " (attention's causal half), " << count(flops_per_token(report.shape, FlopsConvention::kFullSquare))
      << " (its full square)\n"
      << "run       " << run.ranks << (run.ranks > 1 ? " ranks" : " rank") << ", stage " << run.stage << ", "
      << short_name(run.compute_dtype) << ", " << run.micro_batch << " x " << run.seq_len << " tokens a rank x "
      << run.accumulation
      << (run.recompute.policy == Recompute::kNone ? "" : ", recomputed: " + describe(run.recompute)) << "\n";
  if (!report.chosen.empty()) out << "auto      " << report.chosen << "\n";
  if (report.limit.bytes > 0)
    out << "limit     " << format_bytes(report.limit.bytes) << " (" << report.limit.from << "), of which "
        << fixed(100 * report.margin, 0) << " % stay free\n";
  for (const std::string& refusal : report.refusals) out << "train would refuse this run: " << refusal << "\n";
}

void write_row(std::ostream& out, const std::string& name, const PlanReport& report,
               const std::function<std::string(const StageMemory&)>& cell) {
  out << "  " << name << std::string(name.size() < 22 ? 22 - name.size() : 1, ' ');
  for (const StageMemory& stage : report.stages) out << pad(cell(stage), 12);
  out << "\n";
}

void write_memory(std::ostream& out, const PlanReport& report) {
  out << "\nMemory of a rank at the fullest moment of a step, MiB\n";
  write_row(out, "", report, [&](const StageMemory& stage) {
    return concat(stage.stage == report.run.stage ? "*" : "", "stage ", stage.stage);
  });
  for (std::size_t i = 0; i < kNumHoldings; ++i) {
    const auto holding = static_cast<Holding>(i);
    const bool used =
        std::ranges::any_of(report.stages, [&](const StageMemory& stage) { return stage.replay.peak[holding] > 0; });
    if (!used) continue;
    write_row(out, std::string(holding_name(holding)), report, [&](const StageMemory& stage) {
      return fixed(static_cast<double>(stage.replay.peak[holding]) / kMiB, 1);
    });
  }
  write_row(out, "peak", report,
            [](const StageMemory& stage) { return fixed(static_cast<double>(stage.replay.peak.total) / kMiB, 1); });
  write_row(out, "saved", report, [](const StageMemory& stage) { return fixed(100 * stage.saving, 1) + " %"; });
  write_row(out, concat("host, ", report.local_ranks, report.local_ranks > 1 ? " ranks" : " rank"), report,
            [](const StageMemory& stage) { return fixed(static_cast<double>(stage.need.host) / kMiB, 1); });
  if (report.limit.bytes > 0)
    write_row(out, "fits", report, [](const StageMemory& stage) { return std::string(stage.fits ? "yes" : "no"); });
  if (report.cluster)
    write_row(out, "step", report, [](const StageMemory& stage) { return duration(stage.seconds->total()); });
  const StepReplay& own = report.own().replay;
  out << "  fullest at: " << own.peak.label;
  if (own.load_peak > own.peak.total) out << "; reading the weights takes more: " << format_bytes(own.load_peak);
  if (own.export_peak > std::max(own.peak.total, own.load_peak))
    out << "; writing the result takes more: " << format_bytes(own.export_peak);
  out << "\n";
}

void write_time(std::ostream& out, const PlanReport& report) {
  if (!report.cluster) {
    out << "\nTime: no --cluster given. `intarsia bench --write-cluster FILE` measures this host; ready ones:";
    for (const ClusterSpec& cluster : cluster_presets()) out << " " << cluster.name;
    out << "\n";
    return;
  }
  const StepSeconds& own = *report.own().seconds;
  const double tokens = static_cast<double>(report.run.global_batch() * report.run.seq_len);
  const double peak =
      report.cluster->device.peak_flops[static_cast<std::size_t>(matrix_type(report.run.compute_dtype))];
  out << "\nTime of a step on " << report.cluster->name << ": " << duration(own.total()) << " (products "
      << duration(own.matrix) << ", attention " << duration(own.attention) << ", other operations "
      << duration(own.elementwise) << ", their number " << duration(own.dispatch) << ", traffic "
      << duration(own.traffic) << (own.hidden > 0 ? concat(" and ", duration(own.hidden), " hidden") : "")
      << ", update " << duration(own.update) << "), " << fixed(tokens / own.total(), 0) << " tokens/s";
  if (peak > 0)
    out << ", MFU "
        << fixed(100 * tokens * flops_per_token(report.shape, FlopsConvention::kCausalHalf) /
                     (own.total() * peak * report.run.ranks),
                 1)
        << " %";
  out << "\n  rates: " << report.cluster->calibration << "\n";
}

void write_candidate(std::ostream& out, const PlanReport& report, const Candidate& candidate) {
  const std::string missing = not_runnable_here(candidate.layout);
  out << "  " << pad(duration(candidate.time.total()), 10) << pad(fixed(candidate.memory.total() / kMiB / 1024, 1), 8)
      << " GiB" << pad(fixed(100 * candidate.speed.mfu, 1), 7) << " %  " << candidate.layout.text() << "\n"
      << std::string(33, ' ') << "slowest link: " << bottleneck(*report.cluster, candidate.layout, candidate.time)
      << (candidate.why.empty() ? "" : "; " + candidate.why) << (missing.empty() ? "" : "; " + missing) << "\n";
}

void write_search(std::ostream& out, const PlanReport& report) {
  if (!report.search) return;
  const SearchResult& result = *report.search;
  out << "\nLayouts of " << report.space->devices << " devices of " << report.cluster->name << ", "
      << report.space->global_batch << " samples an update: " << result.tried << " tried, " << result.fitting
      << " fit\n        step  memory        MFU  layout\n";
  for (const Candidate& candidate : result.best) write_candidate(out, report, candidate);
  const bool first_runs = !result.best.empty() && not_runnable_here(result.best.front().layout).empty();
  if (result.runnable && !first_runs) {
    out << "  the best that `intarsia train` runs today:\n";
    write_candidate(out, report, *result.runnable);
  }
  if (result.smallest) {
    out << "  nothing fits; least memory:\n";
    write_candidate(out, report, *result.smallest);
  }
  if (report.failures) {
    const Goodput good = goodput(*report.failures);
    out << "\nFailures: one device in " << fixed(report.failures->hours_between_failures, 0) << " hours is one of "
        << report.space->devices << " each " << fixed(good.seconds_between_failures / 3600, 1)
        << " hours. A checkpoint takes " << duration(report.failures->checkpoint_seconds) << "; one each "
        << fixed(good.daly_seconds / 60, 1) << " minutes (Daly; Young " << fixed(good.young_seconds / 60, 1)
        << ") leaves " << fixed(100 * good.share, 1) << " % of the time that counts\n";
  }
  out << "\nRule of thumb, data parallelism only (bf16 before fp16, sums in fp32; tensor parallelism inside a host):\n";
  for (const std::string& line : report.ladder) out << "  " << line << "\n";
}

}  // namespace

std::string report_text(const PlanReport& report) {
  std::ostringstream out;
  write_head(out, report);
  write_memory(out, report);
  write_time(out, report);
  write_search(out, report);
  return out.str();
}

}  // namespace intarsia::plan
