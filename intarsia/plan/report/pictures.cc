#include "intarsia/plan/report/pictures.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/plan/memory/published.h"
#include "intarsia/plan/report/svg.h"

namespace intarsia::plan {
namespace {

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;

std::string percent(double share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << " (-" << 100 * share << " %)";
  return share > 0 ? out.str() : "";
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

struct Unit {
  double bytes;
  const char* name;
};
Unit unit_for(double bytes) { return bytes >= 4 * kGiB ? Unit{kGiB, "GiB"} : Unit{kMiB, "MiB"}; }

std::vector<std::string> holding_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kNumHoldings; ++i) names.emplace_back(holding_name(static_cast<Holding>(i)));
  return names;
}

std::vector<double> parts_of(const Moment& moment, double unit) {
  std::vector<double> parts;
  for (const std::int64_t bytes : moment.bytes) parts.push_back(static_cast<double>(bytes) / unit);
  return parts;
}

std::string timeline_svg(const PlanReport& report) {
  const StepReplay& own = report.own().replay;
  const Unit unit = unit_for(static_cast<double>(own.peak.total));
  AreaChart chart{.title = concat("Memory of a rank over one step, stage ", report.run.stage),
                  .unit = unit.name,
                  .part_names = holding_names(),
                  .moments = {},
                  .values = {},
                  .marked = {},
                  .mark = concat("recomputed: ", describe(report.run.recompute))};
  for (const Moment& moment : own.timeline) {
    chart.marked.push_back(moment.recomputed);
    chart.moments.push_back(moment.label.empty() ? "start" : moment.label);
    chart.values.push_back(parts_of(moment, unit.bytes));
  }
  return area_chart_svg(chart);
}

std::string traffic_svg(const PlanReport& report) {
  std::vector<std::vector<double>> bytes;  // by stage: gathered, reduced
  double most = 0;
  for (const StageMemory& stage : report.stages) {
    std::vector<double>& parts = bytes.emplace_back(2, 0);
    for (const Action& action : stage.replay.actions) {
      const double times = action.micro == 1 ? static_cast<double>(report.run.accumulation - 1) : 1;
      if (action.kind == ActionKind::kAllGather) parts[0] += times * static_cast<double>(action.bytes);
      if (action.kind == ActionKind::kReduceScatter) parts[1] += times * static_cast<double>(action.bytes);
    }
    most = std::max(most, parts[0] + parts[1]);
  }
  const Unit unit = unit_for(most);
  BarChart chart{.title = "Bytes that a rank takes part in moving, each step",
                 .unit = unit.name,
                 .part_names = {"all_gather", "reduce_scatter"},
                 .bars = {},
                 .limit = {},
                 .limit_label = {}};
  for (std::size_t stage = 0; stage < bytes.size(); ++stage)
    chart.bars.push_back({.label = concat("stage ", stage),
                          .note = "",
                          .parts = {bytes[stage][0] / unit.bytes, bytes[stage][1] / unit.bytes}});
  return bar_chart_svg(chart);
}

std::string search_table(const PlanReport& report) {
  std::ostringstream out;
  out << "<table id=\"layouts\"><thead><tr>";
  for (const char* name : {"step, ms", "memory, GiB", "MFU, %", "stage", "replicate", "shard", "tensor", "pipeline",
                           "micro-batch", "accumulation", "recompute", "offload", "slowest link", "why not first"})
    out << "<th>" << name << "</th>";
  out << "</tr></thead><tbody>\n";
  for (const Candidate& c : report.search->best) {
    const std::string missing = not_runnable_here(c.layout);
    out << "<tr><td>" << fixed(1000 * c.time.total(), 1) << "</td><td>" << fixed(c.memory.total() / kGiB, 2)
        << "</td><td>" << fixed(100 * c.speed.mfu, 1) << "</td><td>" << c.layout.stage << "</td><td>"
        << c.layout.replicate << "</td><td>" << c.layout.shard << "</td><td>" << c.layout.tensor << "</td><td>"
        << c.layout.pipeline << "</td><td>" << c.layout.micro_batch << "</td><td>" << c.layout.accumulation
        << "</td><td>" << recomputed_name(c.layout.recomputed) << "</td><td>" << offload_name(c.layout.offload)
        << "</td><td>" << xml_escape(bottleneck(*report.cluster, c.layout, c.time)) << "</td><td>" << xml_escape(c.why)
        << (missing.empty() ? "" : (c.why.empty() ? "" : "; ") + missing) << "</td></tr>\n";
  }
  out << "</tbody></table>\n";
  return out.str();
}

std::string scatter_of(const PlanReport& report) {
  ScatterChart chart{.title = "Time against memory: layouts that no other one beats in both, and the best",
                     .x_label = "step, s",
                     .y_label = "GiB",
                     .points = {}};
  const auto add = [&](const Candidate& c) {
    chart.points.push_back({c.time.total(), c.memory.total() / kGiB, c.layout.text()});
  };
  for (const Candidate& c : report.search->best) add(c);
  for (const Candidate& c : report.search->frontier) add(c);
  return scatter_svg(chart);
}

// Sorts a table by the column that is clicked, numbers as numbers.
constexpr const char* kSort =
    "document.querySelectorAll('th').forEach((h,i)=>h.onclick=()=>{const b=h.closest('table').tBodies[0];const "
    "d=h.dataset.d=h.dataset.d==='1'?'-1':'1';[...b.rows].sort((x,y)=>{const p=x.cells[i].textContent,q=y.cells[i]."
    "textContent;return d*(isNaN(p)||isNaN(q)?p.localeCompare(q):p-q)}).forEach(r=>b.append(r))})";

}  // namespace

std::string stages_svg(const PlanReport& report) {
  double top = 0;
  for (const StageMemory& stage : report.stages) top = std::max(top, static_cast<double>(stage.replay.peak.total));
  const Unit unit = unit_for(top);
  BarChart chart{.title = concat("Memory of a rank by stage: ", report.model, ", ", report.run.ranks, " ranks"),
                 .unit = unit.name,
                 .part_names = holding_names(),
                 .bars = {},
                 .limit = {},
                 .limit_label = "limit of a rank"};
  for (const StageMemory& stage : report.stages)
    chart.bars.push_back({.label = concat("stage ", stage.stage),
                          .note = percent(stage.saving),
                          .parts = parts_of(stage.replay.peak, unit.bytes)});
  const double limit = static_cast<double>(report.limit.bytes) / report.local_ranks;
  if (limit > 0 && limit < 4 * top) chart.limit = limit / unit.bytes;  // far above, it would flatten the bars
  return bar_chart_svg(chart);
}

std::string zero_stages_svg(double parameters, int devices, double limit_bytes) {
  constexpr double kGB = 1e9;
  BarChart chart{.title = concat("Model states of ", fixed(parameters / 1e9, 0), "B parameters on ", devices,
                                 " devices, 16-bit with Adam"),
                 .unit = "GB",
                 .part_names = {"parameters", "gradients", "optimizer"},
                 .bars = {},
                 .limit = limit_bytes / kGB,
                 .limit_label = concat("device, ", fixed(limit_bytes / kGB, 0), " GB")};
  const double whole = zero_state_bytes(parameters, 0, devices);
  for (int stage = 0; stage <= 3; ++stage) {
    const auto part = [&](const StateBytes& bytes) {
      return zero_state_bytes(parameters, stage, devices, bytes) / kGB;
    };
    chart.bars.push_back({.label = concat("stage ", stage),
                          .note = percent(1 - zero_state_bytes(parameters, stage, devices) / whole),
                          .parts = {part({kZeroPaper.params, 0, 0}), part({0, kZeroPaper.grads, 0}),
                                    part({0, 0, kZeroPaper.optimizer})}});
  }
  return bar_chart_svg(chart);
}

std::string report_html(const PlanReport& report) {
  std::ostringstream out;
  out << "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"><title>Plan of "
      << xml_escape(report.model) << "</title><style>" << svg::kPageStyle << "</style>\n<h1>Plan of "
      << xml_escape(report.model) << "</h1>\n<section>" << stages_svg(report) << "</section>\n<section>"
      << timeline_svg(report) << "</section>\n";
  if (report.run.ranks > 1) out << "<section>" << traffic_svg(report) << "</section>\n";
  if (report.search && !report.search->best.empty()) {
    out << "<h2>Layouts of " << report.space->devices << " devices of " << xml_escape(report.cluster->name)
        << "</h2>\n<p>" << report.search->tried << " tried, " << report.search->fitting
        << " fit. A click on a column's name sorts.</p><div class=\"wide\">" << search_table(report)
        << "</div><section>" << scatter_of(report) << "</section>\n";
    if (report.pipeline_run)
      out << "<section>"
          << pipeline_svg(*report.pipeline, *report.pipeline_run,
                          concat("Pipeline of the best layout: ", schedule_name(report.pipeline->schedule), ", ",
                                 report.pipeline->micro_batches, " micro-batches"))
          << "</section>\n";
  }
  out << "<h2>In words</h2><pre>" << xml_escape(report_text(report)) << "</pre>\n<script>" << kSort
      << "</script></html>\n";
  return out.str();
}

}  // namespace intarsia::plan
