#include <algorithm>
#include <cmath>
#include <sstream>

#include "intarsia/base/text.h"
#include "intarsia/train/metrics.h"

namespace intarsia::train {
namespace {

constexpr double kWidth = 800, kHeight = 420, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;

struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / std::max(high - low, 1e-12) * (to - from); }
};

// A step of 1, 2 or 5 times a power of ten that gives about five marks.
double mark_step(double span) {
  const double raw = std::max(span, 1e-9) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

std::string rounded(double value) { return shortest(std::round(value * 1e4) / 1e4); }

void axes(std::ostringstream& svg, const Scale& x, const Scale& y) {
  svg << "<g stroke='#ccc' fill='#555' font-size='12'>\n";
  const double ystep = mark_step(y.high - y.low), xstep = std::max(1.0, mark_step(x.high - x.low));
  for (double mark = std::ceil(y.low / ystep) * ystep; mark <= y.high; mark += ystep)
    svg << "<path d='M" << kLeft << " " << y(mark) << "H" << kWidth - kRight << "'/><text stroke='none' x='"
        << kLeft - 8 << "' y='" << y(mark) + 4 << "' text-anchor='end'>" << rounded(mark) << "</text>\n";
  for (double mark = std::ceil(x.low / xstep) * xstep; mark <= x.high; mark += xstep)
    svg << "<path d='M" << x(mark) << " " << kTop << "V" << kHeight - kBottom << "'/><text stroke='none' x='" << x(mark)
        << "' y='" << kHeight - kBottom + 18 << "' text-anchor='middle'>" << rounded(mark) << "</text>\n";
  svg << "</g>\n";
}

void curve(std::ostringstream& svg, const std::vector<std::pair<double, double>>& points, const Scale& x,
           const Scale& y, const char* color, bool dots) {
  if (points.empty()) return;
  svg << "<polyline fill='none' stroke='" << color << "' stroke-width='1.5' points='";
  for (const auto& [step, loss] : points) svg << x(step) << "," << y(loss) << " ";
  svg << "'/>\n";
  if (!dots) return;
  for (const auto& [step, loss] : points)
    svg << "<circle r='3' fill='" << color << "' cx='" << x(step) << "' cy='" << y(loss) << "'/>\n";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

}  // namespace

std::string loss_plot(const std::vector<LossPoint>& points, const std::string& title) {
  std::vector<std::pair<double, double>> train, eval;
  Scale x{0, 1, kLeft, kWidth - kRight}, y{1e300, -1e300, kHeight - kBottom, kTop};
  for (const LossPoint& point : points) {
    const auto step = static_cast<double>(point.step);
    x.high = std::max(x.high, step);
    for (const auto& [value, list] : {std::pair{point.loss, &train}, std::pair{point.eval_loss, &eval}}) {
      if (!value) continue;
      list->emplace_back(step, *value);
      y.low = std::min(y.low, *value);
      y.high = std::max(y.high, *value);
    }
  }
  if (y.low > y.high) y.low = 0, y.high = 1;
  std::ostringstream svg;
  svg << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << kWidth << " " << kHeight
      << "' font-family='sans-serif'>\n<rect width='100%' height='100%' fill='white'/>\n<text x='" << kLeft
      << "' y='22' font-size='15'>" << escaped(title) << "</text>\n";
  axes(svg, x, y);
  curve(svg, train, x, y, "#1f6fb4", false);
  curve(svg, eval, x, y, "#d1491b", true);
  svg << "<text x='" << kWidth / 2 << "' y='" << kHeight - 12 << "' font-size='13' text-anchor='middle'>step</text>\n"
      << "<text x='" << kWidth - kRight
      << "' y='22' font-size='13' text-anchor='end'><tspan fill='#1f6fb4'>training loss"
      << "</tspan>" << (eval.empty() ? "" : "  <tspan fill='#d1491b'>evaluation loss</tspan>") << "</text>\n</svg>\n";
  return svg.str();
}

}  // namespace intarsia::train
