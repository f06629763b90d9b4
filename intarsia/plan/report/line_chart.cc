#include "intarsia/plan/report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "intarsia/plan/report/svg.h"

namespace intarsia::plan {
namespace {

using namespace svg;

constexpr int kRight = 20, kChartHeight = 300;
constexpr double kBottomEdge = kChartHeight - kBottom;

constexpr const char* kCurveStyle =
    ".k{fill:none;stroke-width:1.6;stroke-linejoin:round}.b{opacity:.22}.k0{stroke:#1f4e9c}.k1{stroke:#c7501d}"
    ".k2{stroke:#2f8f5b}.k3{stroke:#7a3fa0}.f0{fill:#1f4e9c}.f1{fill:#c7501d}.f2{fill:#2f8f5b}.f3{fill:#7a3fa0}";
constexpr const char* kDarkCurves =
    "@media(prefers-color-scheme:dark){.k0{stroke:#7fb0ff}.k1{stroke:#ff9a62}.k2{stroke:#6fd39a}.k3{stroke:#d0a2f0}"
    ".f0{fill:#7fb0ff}.f1{fill:#ff9a62}.f2{fill:#6fd39a}.f3{fill:#d0a2f0}}";

// Six digits are enough for a mark; they hide the rounding of sums.
std::string mark(double value) {
  std::ostringstream out;
  out.precision(6);
  out << (std::abs(value) < 1e-300 ? 0 : value);
  return out.str();
}

struct Range {
  double low = 0, high = 1;
  double tick() const { return tick_of(high - low); }
};

// What the vertical axis shows.
Range range_of(const LineChart& chart) {
  std::vector<double> highs;
  double low = chart.limit.value_or(HUGE_VAL), high = chart.limit.value_or(-HUGE_VAL);
  for (const LineChart::Curve& curve : chart.curves)
    for (const Series::Point& point : curve.series.points()) {
      low = std::min(low, point.low);
      high = std::max(high, point.high);
      highs.push_back(point.high);
    }
  if (highs.empty()) return {};
  if (chart.from_zero) low = std::min(low, 0.0);
  if (!chart.from_zero && highs.size() >= 20) {
    // All but the highest fiftieth, with air above it.
    const auto nth = highs.begin() + static_cast<std::ptrdiff_t>(highs.size() * 49 / 50);
    std::nth_element(highs.begin(), nth, highs.end());
    high = std::min(high, low + 2 * (*nth - low));
  }
  low /= chart.scale;
  high /= chart.scale;
  if (high - low < 1e-9 * std::max(std::abs(high), 1e-30)) high = low + std::max(std::abs(low) * 0.1, 1e-9);
  const double tick = tick_of(high - low);
  return {std::floor(low / tick) * tick, std::ceil(high / tick - 1e-9) * tick};
}

class Plot {
 public:
  explicit Plot(const LineChart& chart) : chart_(chart), y_(range_of(chart)) {
    x_ = {HUGE_VAL, -HUGE_VAL};
    for (const LineChart::Curve& curve : chart.curves) {
      if (curve.series.empty()) continue;
      x_.low = std::min(x_.low, curve.series.points().front().x);
      x_.high = std::max(x_.high, curve.series.points().back().x);
    }
    if (x_.low > x_.high) x_ = {0, 1};
    if (x_.low == x_.high) x_.low -= 1;
  }

  double x(double value) const { return kLeft + (kWidth - kRight - kLeft) * (value - x_.low) / (x_.high - x_.low); }
  double y(double value) const {
    const double share = (value / chart_.scale - y_.low) / (y_.high - y_.low);
    return kBottomEdge - (kBottomEdge - kTop) * std::clamp(share, 0.0, 1.0);
  }

  std::string axes() const {
    std::string out;
    const double right = kWidth - kRight, step = y_.tick();
    const auto marks = static_cast<int>(std::lround((y_.high - y_.low) / step));
    for (int i = 0; i <= marks; ++i) {
      const double value = y_.low + i * step, at = y(value * chart_.scale);
      out += line(kLeft, at, right, at, i == 0 ? "a" : "g") + text_at(kLeft - 6, at + 4, mark(value), "end", "m");
    }
    const double xstep = std::max(1.0, x_.tick());
    for (double value = std::ceil(x_.low / xstep) * xstep; value <= x_.high; value += xstep)
      out += text_at(x(value), kBottomEdge + 18, mark(value), "middle", "m");
    return out + text_at(kLeft, kTop - 12, chart_.unit, "start", "m") +
           text_at(right, kChartHeight - 8, "step", "end", "m");
  }

  std::string curve(const LineChart::Curve& curve) const {
    std::ostringstream band, path, dots;
    const std::vector<Series::Point>& points = curve.series.points();
    const bool joined = points.front().count > 1;
    for (const Series::Point& point : points) {
      path << (path.tellp() > 0 ? "L" : "M") << number(x(point.x)) << " " << number(y(point.mean));
      band << (band.tellp() > 0 ? "L" : "M") << number(x(point.x)) << " " << number(y(point.high));
      if (curve.dots || points.size() == 1)
        dots << "<circle class=\"f" << curve.colour << "\" r=\"3\" cx=\"" << number(x(point.x)) << "\" cy=\""
             << number(y(point.mean)) << "\"><title>" << xml_escape(curve.name) << ", step " << mark(point.x) << ": "
             << mark(point.mean / chart_.scale) << "</title></circle>\n";
    }
    for (auto point = points.rbegin(); point != points.rend(); ++point)
      band << "L" << number(x(point->x)) << " " << number(y(point->low));
    std::ostringstream out;
    if (joined) out << "<path class=\"b f" << curve.colour << "\" d=\"" << band.str() << "Z\"/>\n";
    out << "<path class=\"k k" << curve.colour << "\" d=\"" << path.str() << "\"/>\n" << dots.str();
    return out.str();
  }

  // Names to the right of the unit, those with points only.
  std::string legend() const {
    std::string out;
    double at = kWidth - kRight;
    for (auto curve = chart_.curves.rbegin(); curve != chart_.curves.rend(); ++curve) {
      if (curve->series.empty()) continue;
      at -= 7.2 * static_cast<double>(curve->name.size());  // about its width
      out += text_at(at, kTop - 12, curve->name);
      out += "<circle class=\"f" + std::to_string(curve->colour) + "\" r=\"4\" cx=\"" + number(at - 9) + "\" cy=\"" +
             number(kTop - 16) + "\"/>\n";
      at -= 26;
    }
    return out;
  }

 private:
  const LineChart& chart_;
  Range x_, y_;
};

}  // namespace

void Series::add(double x, double value) {
  if (!std::isfinite(value) || !std::isfinite(x)) return;
  if (!points_.empty() && points_.back().count < stride_) {
    Point& last = points_.back();
    last.mean += (value - last.mean) / static_cast<double>(++last.count);
    last.low = std::min(last.low, value);
    last.high = std::max(last.high, value);
    last.x = x;
    return;
  }
  if (points_.size() == kMaxPoints) {
    for (std::size_t i = 0; i < kMaxPoints / 2; ++i) {
      const Point &a = points_[2 * i], &b = points_[2 * i + 1];
      const auto count = static_cast<double>(a.count + b.count);
      points_[i] = {b.x, a.mean + (b.mean - a.mean) * static_cast<double>(b.count) / count, std::min(a.low, b.low),
                    std::max(a.high, b.high), a.count + b.count};
    }
    points_.resize(kMaxPoints / 2);
    stride_ *= 2;
  }
  points_.push_back({x, value, value, value, 1});
}

std::string line_chart_svg(const LineChart& chart) {
  const Plot plot(chart);
  std::string out = opened(kWidth, kChartHeight, chart.title,
                           {chart.opaque, std::string(kCurveStyle) + (chart.opaque ? "" : kDarkCurves)}) +
                    plot.axes();
  for (const LineChart::Curve& curve : chart.curves)
    if (!curve.series.empty()) out += plot.curve(curve);
  if (chart.limit) {
    out += line(kLeft, plot.y(*chart.limit), kWidth - kRight, plot.y(*chart.limit), "l");
    out += text_at(kWidth - kRight - 4, plot.y(*chart.limit) - 6, chart.limit_label, "end", "lt");
  }
  return out + plot.legend() + "</svg>\n";
}

}  // namespace intarsia::plan
