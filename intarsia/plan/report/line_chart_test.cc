#include "intarsia/plan/report/line_chart.h"

#include <gtest/gtest.h>

#include <cmath>

namespace intarsia::plan {
namespace {

TEST(Series, KeepsMeanAndExtremesOfAnyNumberOfValues) {
  Series series;
  constexpr int kValues = 100'000;
  for (int i = 1; i <= kValues; ++i) series.add(i, i == 777 ? 50.0 : 1.0 + i % 2);
  ASSERT_LE(series.points().size(), Series::kMaxPoints);
  double sum = 0, high = 0;
  std::int64_t count = 0;
  for (const Series::Point& point : series.points()) {
    sum += point.mean * static_cast<double>(point.count);
    high = std::max(high, point.high);
    count += point.count;
  }
  EXPECT_EQ(count, kValues);
  EXPECT_EQ(high, 50.0);
  EXPECT_NEAR(sum / kValues, 1.5 + 48.0 / kValues, 1e-9);
  EXPECT_EQ(series.points().back().x, kValues);
}

TEST(Series, LeavesOutWhatIsNotFinite) {
  Series series;
  series.add(1, std::nan(""));
  series.add(2, INFINITY);
  EXPECT_TRUE(series.empty());
  series.add(3, 4);
  EXPECT_EQ(series.points().size(), 1U);
}

LineChart one_curve(int points) {
  LineChart chart{.title = "a<b>", .unit = "nats", .curves = {{.name = "l&m", .series = {}}}};
  for (int i = 1; i <= points; ++i) chart.curves[0].series.add(i, 2.0 + 1.0 / i);
  return chart;
}

TEST(LineChart, EscapesTextsAndHasNoBadNumber) {
  for (const int points : {0, 1, 2, 2000}) {
    LineChart chart = one_curve(points);
    for (const bool from_zero : {true, false}) {
      chart.from_zero = from_zero;
      const std::string svg = line_chart_svg(chart);
      EXPECT_NE(svg.find("a&lt;b&gt;"), std::string::npos);
      EXPECT_EQ(svg.find("a<b>"), std::string::npos);
      for (const char* bad : {"nan", "inf\"", "inf "}) EXPECT_EQ(svg.find(bad), std::string::npos) << bad << points;
      EXPECT_EQ(svg.find("l&amp;m") != std::string::npos, points > 0);
    }
  }
}

TEST(LineChart, ConstantAndTinyValuesHaveMarks) {
  LineChart chart{.title = "rate", .unit = "", .curves = {{.name = "lr", .series = {}}}};
  for (int i = 1; i <= 5; ++i) chart.curves[0].series.add(i, 2e-5);
  EXPECT_NE(line_chart_svg(chart).find(">2e-05<"), std::string::npos);
  chart.from_zero = false;
  EXPECT_NE(line_chart_svg(chart).find(">2e-05<"), std::string::npos);
}

TEST(LineChart, ASpikeDoesNotFlattenTheRest) {
  LineChart chart = one_curve(200);
  chart.from_zero = false;
  const std::string calm = line_chart_svg(chart);
  chart.curves[0].series.add(201, 1e6);
  EXPECT_EQ(line_chart_svg(chart).find("e+06"), std::string::npos);
  EXPECT_NE(calm.find(">2.2<"), std::string::npos);
}

TEST(LineChart, OpaqueOnesAreWhiteForEveryReader) {
  LineChart chart = one_curve(3);
  EXPECT_NE(line_chart_svg(chart).find("prefers-color-scheme"), std::string::npos);
  chart.opaque = true;
  EXPECT_EQ(line_chart_svg(chart).find("prefers-color-scheme"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::plan
