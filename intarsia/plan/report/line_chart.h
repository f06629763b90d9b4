// Curves over steps, of any number of points in bounded memory, as SVG text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace intarsia::plan {

// Values over rising x. Beyond kMaxPoints neighbours are joined: a point is then the mean of its values and remembers
// the lowest and the highest, so that a spike is still seen.
class Series {
 public:
  static constexpr std::size_t kMaxPoints = 600;
  struct Point {
    double x = 0;  // of its last value
    double mean = 0, low = 0, high = 0;
    std::int64_t count = 0;
  };
  // Values that are not finite are left out.
  void add(double x, double value);
  const std::vector<Point>& points() const { return points_; }
  bool empty() const { return points_.empty(); }

 private:
  std::vector<Point> points_;
  std::int64_t stride_ = 1;  // values of a full point
};

struct LineChart {
  struct Curve {
    std::string name;
    Series series;
    std::size_t colour = 0;  // 0 to 3
    bool dots = false;
  };
  std::string title, unit;
  std::vector<Curve> curves;
  bool from_zero = true;  // else the axis begins near the lowest value
  double scale = 1;       // values are divided by it
  std::optional<double> limit = {};
  std::string limit_label = {};
  bool opaque = false;
};
// Curves without points are left out. Spikes far above the rest are cut at the upper edge where the axis is not from
// zero, so that they do not flatten everything else.
std::string line_chart_svg(const LineChart& chart);

}  // namespace intarsia::plan
