#include "intarsia/plan/report/charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "intarsia/plan/report/svg.h"

namespace intarsia::plan {
namespace {

using namespace svg;

class Axis {
 public:
  explicit Axis(double top) : tick_(tick_of(std::max(top, 1e-9))), top_(std::ceil(top * 1.02 / tick_) * tick_) {}
  double y(double value) const { return kTop + (kHeight - kTop - kBottom) * (1 - value / top_); }
  std::string draw(const std::string& unit, double right) const {
    std::string out;
    for (double value = 0; value <= top_ * 1.0001; value += tick_) {
      out += line(kLeft, y(value), right, y(value), value == 0 ? "a" : "g");
      out += text_at(kLeft - 6, y(value) + 4, number(value), "end", "m");
    }
    return out + text_at(kLeft - 6, kTop - 14, unit, "end", "m");
  }

 private:
  double tick_, top_;
};

double sum(const std::vector<double>& parts) {
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

std::string legend(const std::vector<std::string>& names, const std::vector<bool>& used) {
  std::string out;
  double y = kTop + 6;
  for (std::size_t i = names.size(); i-- > 0;) {  // as they are stacked
    if (!used[i]) continue;
    out += rect(kWidth - kLegend + 16, y, 12, 12, i, names[i]);
    out += text_at(kWidth - kLegend + 34, y + 10, names[i]);
    y += 20;
  }
  return out;
}

}  // namespace

std::string bar_chart_svg(const BarChart& chart) {
  double top = chart.limit.value_or(0);
  std::vector<bool> used(chart.part_names.size(), false);
  for (const BarChart::Bar& bar : chart.bars) {
    top = std::max(top, sum(bar.parts));
    for (std::size_t i = 0; i < bar.parts.size(); ++i) used[i] = used[i] || bar.parts[i] > 0;
  }
  const Axis axis(top);
  const double right = kWidth - kLegend, slot = (right - kLeft) / static_cast<double>(chart.bars.size());
  std::string out = opened(kWidth, kHeight, chart.title) + axis.draw(chart.unit, right);
  for (std::size_t b = 0; b < chart.bars.size(); ++b) {
    const BarChart::Bar& bar = chart.bars[b];
    const double x = kLeft + slot * (static_cast<double>(b) + 0.2), width = 0.6 * slot;
    double below = 0;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      if (bar.parts[i] <= 0) continue;
      out += rect(x, axis.y(below + bar.parts[i]), width, axis.y(below) - axis.y(below + bar.parts[i]), i,
                  bar.label + ", " + chart.part_names[i] + ": " + number(bar.parts[i]) + " " + chart.unit);
      below += bar.parts[i];
    }
    const double middle = x + width / 2;
    out += text_at(middle, axis.y(below) - 6, number(below, below < 10 ? 2 : 1) + bar.note, "middle");
    out += text_at(middle, kHeight - kBottom + 18, bar.label, "middle");
  }
  if (chart.limit) {
    out += line(kLeft, axis.y(*chart.limit), right, axis.y(*chart.limit), "l");
    out += text_at(right - 4, axis.y(*chart.limit) - 6, chart.limit_label, "end", "lt");
  }
  return out + legend(chart.part_names, used) + "</svg>\n";
}

std::string area_chart_svg(const AreaChart& chart) {
  double top = 0;
  std::vector<bool> used(chart.part_names.size(), false);
  for (const auto& parts : chart.values) {
    top = std::max(top, sum(parts));
    for (std::size_t i = 0; i < parts.size(); ++i) used[i] = used[i] || parts[i] > 0;
  }
  const Axis axis(top);
  const double right = kWidth - kLegend;
  const double slot = (right - kLeft) / static_cast<double>(std::max<std::size_t>(1, chart.values.size()));
  std::string out = opened(kWidth, kHeight, chart.title) + axis.draw(chart.unit, right);
  std::vector<double> below(chart.values.size(), 0);
  for (std::size_t part = 0; part < chart.part_names.size(); ++part) {
    if (!used[part]) continue;
    std::ostringstream path;
    path << "<path class=\"c" << part % kColours << "\" d=\"M";
    for (std::size_t m = 0; m < chart.values.size(); ++m) {  // along the upper edge
      const double y = axis.y(below[m] + chart.values[m][part]), x = kLeft + slot * static_cast<double>(m);
      path << number(x) << " " << number(y) << "L" << number(x + slot) << " " << number(y) << "L";
    }
    for (std::size_t m = chart.values.size(); m-- > 0;) {  // and back along the lower one
      const double y = axis.y(below[m]), x = kLeft + slot * static_cast<double>(m);
      path << number(x + slot) << " " << number(y) << "L" << number(x) << " " << number(y) << (m > 0 ? "L" : "Z");
      below[m] += chart.values[m][part];
    }
    path << "\"><title>" << xml_escape(chart.part_names[part]) << "</title></path>\n";
    out += path.str();
  }
  for (std::size_t m = 0; m < chart.values.size(); ++m) {  // what it is, under the pointer
    const double x = kLeft + slot * static_cast<double>(m);
    out += "<rect fill=\"transparent\" x=\"" + number(x) + "\" y=\"" + number(kTop) + "\" width=\"" + number(slot) +
           "\" height=\"" + number(kHeight - kTop - kBottom) + "\"><title>" + xml_escape(chart.moments[m]) + ": " +
           number(sum(chart.values[m])) + " " + chart.unit + "</title></rect>\n";
  }
  const auto first = std::ranges::find(chart.marked, true);
  for (std::size_t m = 0; m < chart.marked.size(); ++m)
    if (chart.marked[m])
      out += rect(kLeft + slot * static_cast<double>(m), kHeight - kBottom + 2, slot, 5, 8,
                  chart.moments[m] + ": " + chart.mark);
  if (first != chart.marked.end())
    out +=
        text_at(kLeft + slot * static_cast<double>(first - chart.marked.begin()), kHeight - kBottom + 34, chart.mark);
  if (!chart.moments.empty()) {
    out += text_at(kLeft, kHeight - kBottom + 18, chart.moments.front());
    out += text_at(right, kHeight - kBottom + 18, chart.moments.back(), "end");
  }
  return out + legend(chart.part_names, used) + "</svg>\n";
}

std::string scatter_svg(const ScatterChart& chart) {
  double top = 0, wide = 0;
  for (const ScatterChart::Point& point : chart.points) {
    top = std::max(top, point.y);
    wide = std::max(wide, point.x);
  }
  const Axis axis(top);
  const double right = kWidth - 24, tick = tick_of(std::max(wide, 1e-9));
  const double end = std::ceil(wide * 1.02 / tick) * tick;
  const auto x_of = [&](double x) { return kLeft + (right - kLeft) * x / end; };
  std::string out = opened(kWidth, kHeight, chart.title) + axis.draw(chart.y_label, right);
  for (double value = 0; value <= end * 1.0001; value += tick)
    out += text_at(x_of(value), kHeight - kBottom + 18, number(value, 3), "middle", "m");
  out += text_at(right, kHeight - 8, chart.x_label, "end", "m");
  for (std::size_t i = chart.points.size(); i-- > 0;) {
    const ScatterChart::Point& point = chart.points[i];
    out += std::string("<circle class=\"") + (i == 0 ? "c2" : "c0") + "\" cx=\"" + number(x_of(point.x)) + "\" cy=\"" +
           number(axis.y(point.y)) + "\" r=\"" + (i == 0 ? "7" : "4") + "\"><title>" + xml_escape(point.label) +
           "</title></circle>\n";
  }
  return out + "</svg>\n";
}

std::string pipeline_svg(const PipelinePlan& plan, const PipelineRun& run, const std::string& title) {
  constexpr int kRow = 24;
  const int height = kTop + kRow * plan.ranks + 34;
  const double right = kWidth - 8, scale = (right - kLeft) / run.seconds;
  std::string out = opened(kWidth, height, title);
  static constexpr std::array<std::size_t, 4> kColours{0, 2, 2, 6};  // forward, backward, its halves
  static constexpr std::array<const char*, 4> kNames{"forward", "backward", "input half", "weight half"};
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const double y = kTop + kRow * rank;
    out += text_at(kLeft - 6, y + 15, "rank " + std::to_string(rank), "end", "m");
    for (const PipelineEvent& event : run.events[static_cast<std::size_t>(rank)]) {
      const auto op = static_cast<std::size_t>(event.action.op);
      const double x = kLeft + event.begin * scale, width = std::max(0.5, (event.end - event.begin) * scale - 0.5);
      out += rect(x, y, width, kRow - 3, kColours[op] + static_cast<std::size_t>(event.action.chunk % 2 == 1 ? 1 : 0),
                  std::string(kNames[op]) + " of micro-batch " + std::to_string(event.action.micro) + ", chunk " +
                      std::to_string(event.action.chunk));
    }
  }
  const double y = height - 20;
  out += rect(kLeft, y, 12, 12, 0, "forward") + text_at(kLeft + 18, y + 10, "forward") +
         rect(kLeft + 90, y, 12, 12, 2, "backward") + text_at(kLeft + 108, y + 10, "backward");
  if (plan.schedule >= PipelineSchedule::kZeroBubbleH1)
    out += rect(kLeft + 190, y, 12, 12, 6, "weight half") + text_at(kLeft + 208, y + 10, "weight half");
  out += text_at(right, y + 10, "busy " + number(100 * run.busy, 1) + " %", "end", "m");
  return out + "</svg>\n";
}

}  // namespace intarsia::plan
