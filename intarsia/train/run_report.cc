#include "intarsia/train/run_report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "intarsia/base/text.h"
#include "intarsia/plan/report/svg.h"
#include "intarsia/train/console.h"

namespace intarsia::train {
namespace {

using plan::LineChart;
using plan::xml_escape;

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;

constexpr const char* kReportStyle =
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:.6rem;margin:1rem 0}dl "
    "div{background:#8881;border-radius:6px;padding:.5rem .8rem}dt{font-size:12.5px;opacity:.75}dd{margin:0;"
    "font-weight:600}blockquote{margin:.5rem 0;padding:.4rem .8rem;border-left:3px solid "
    "#8888;white-space:pre-wrap;overflow-wrap:anywhere}blockquote b{font-weight:600}th{cursor:auto}";

std::string four_digits(double value) {
  std::ostringstream out;
  out << std::setprecision(5) << value;
  return out.str();
}

std::string figure(const LineChart& chart) { return "<section>" + plan::line_chart_svg(chart) + "</section>\n"; }

LineChart loss_chart(const RunHistory& history, const std::string& title) {
  return {.title = title,
          .unit = "nats per target token",
          .curves = {{.name = "training", .series = history.loss, .colour = 0},
                     {.name = "evaluation", .series = history.eval_loss, .colour = 1, .dots = true}},
          .from_zero = false};
}

std::string memory_figure(const RunHistory& history, std::int64_t predicted) {
  const auto predicted_bytes = static_cast<double>(predicted);
  const bool large = std::max(history.highest_peak, predicted_bytes) >= 4 * kGiB;
  LineChart chart{.title = "Memory of the rank that needs most, measured and predicted",
                  .unit = large ? "GiB" : "MiB",
                  .curves = {{.name = "measured peak", .series = history.peak_bytes, .colour = 0}},
                  .scale = large ? kGiB : kMiB};
  if (predicted > 0) {
    chart.limit = predicted_bytes;
    chart.limit_label = "predicted";
  }
  return figure(chart);
}

std::string tiles(const RunHistory& history, const RunFacts& facts) {
  std::ostringstream out;
  const auto tile = [&](const char* name, const std::string& value) {
    out << "<div><dt>" << name << "</dt><dd>" << xml_escape(value) << "</dd></div>";
  };
  out << "<dl>";
  tile("state", facts.status);
  if (!history.loss.empty()) tile("training loss", four_digits(history.loss.points().back().mean));
  if (!history.evaluations.empty()) tile("evaluation loss", four_digits(history.evaluations.back().loss));
  tile("tokens", four_digits(history.tokens_total));
  if (history.seconds > 0) tile("time in steps", format_duration(history.seconds));
  if (history.highest_peak > 0) tile("peak of a rank", format_bytes(static_cast<std::int64_t>(history.highest_peak)));
  if (facts.predicted_peak > 0) tile("predicted peak", format_bytes(facts.predicted_peak));
  if (history.skipped > 0) tile("steps skipped", std::to_string(history.skipped));
  out << "</dl>\n";
  return out.str();
}

std::string evaluation_table(const RunHistory& history) {
  if (history.evaluations.empty()) return "";
  std::ostringstream out;
  out << "<h2>Evaluations</h2>\n<div class=\"wide\"><table><thead><tr><th>step</th><th>loss</th><th>perplexity</th>"
         "</tr></thead><tbody>\n";
  for (const RunHistory::EvaluationLine& line : history.evaluations)
    out << "<tr><td>" << line.step << "</td><td>" << four_digits(line.loss) << "</td><td>"
        << four_digits(std::exp(line.loss)) << "</td></tr>\n";
  out << "</tbody></table></div>\n";
  return out.str();
}

std::string samples_part(const RunHistory& history) {
  if (history.samples.empty()) return "";
  std::ostringstream out;
  out << "<h2>Samples</h2>\n<p>What the model wrote after the prompt (bold), newest first.</p>\n";
  for (auto sample = history.samples.rbegin(); sample != history.samples.rend(); ++sample)
    out << "<p class=\"m\">step " << sample->step << "</p><blockquote><b>" << xml_escape(sample->prompt) << "</b>"
        << xml_escape(sample->text) << "</blockquote>\n";
  return out.str();
}

}  // namespace

std::string run_report_html(const RunHistory& history, const RunFacts& facts) {
  std::ostringstream out;
  out << "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"><meta http-equiv=\"Content-Security-Policy\" "
         "content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>Training of "
      << xml_escape(facts.title) << "</title><style>" << plan::svg::kPageStyle << kReportStyle
      << "</style></head><body>\n<h1>Training of " << xml_escape(facts.title) << "</h1>\n"
      << tiles(history, facts) << figure(loss_chart(history, "Loss"))
      << figure({.title = "Learning rate", .unit = "", .curves = {{.name = "rate", .series = history.lr}}})
      << figure({.title = "Norm of the gradient, before clipping",
                 .unit = "",
                 .curves = {{.name = "norm", .series = history.grad_norm, .colour = 3}},
                 .from_zero = false})
      << figure({.title = "Throughput",
                 .unit = "target tokens per second, all ranks",
                 .curves = {{.name = "tokens/s", .series = history.tokens_per_s, .colour = 2}}})
      << figure({.title = "Time of a step",
                 .unit = "seconds",
                 .curves = {{.name = "step", .series = history.step_seconds, .colour = 0},
                            {.name = "waiting for ranks", .series = history.comm_seconds, .colour = 1},
                            {.name = "data", .series = history.data_seconds, .colour = 2}}})
      << memory_figure(history, facts.predicted_peak);
  if (history.scale_moved)
    out << figure({.title = "Loss scale", .unit = "", .curves = {{.name = "scale", .series = history.loss_scale}}});
  out << evaluation_table(history) << samples_part(history) << "<h2>The run</h2>\n<pre>" << xml_escape(facts.banner)
      << "</pre>\n<details><summary>Configuration</summary><pre>" << xml_escape(facts.config_json)
      << "</pre></details>\n</body></html>\n";
  return out.str();
}

std::string loss_plot(const RunHistory& history, const std::string& title) {
  LineChart chart = loss_chart(history, title);
  chart.opaque = true;
  return plan::line_chart_svg(chart);
}

}  // namespace intarsia::train
