// Charts as SVG text: no libraries, no network, readable on light and dark ground and in print.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "intarsia/plan/report/svg.h"
#include "intarsia/plan/sim/pipeline_sim.h"

namespace intarsia::plan {

// Bars of stacked parts, each with a note above it, and a limit as a line.
struct BarChart {
  struct Bar {
    std::string label, note;
    std::vector<double> parts;  // as many as part_names
  };
  std::string title, unit;
  std::vector<std::string> part_names;
  std::vector<Bar> bars;
  std::optional<double> limit;
  std::string limit_label;
};
std::string bar_chart_svg(const BarChart& chart);

// Stacked parts over moments that follow each other.
struct AreaChart {
  std::string title, unit;
  std::vector<std::string> part_names, moments;
  std::vector<std::vector<double>> values;  // by moment, by part
  std::vector<bool> marked;                 // by moment: under the axis, in the words of `mark`; empty: none
  std::string mark;
};
std::string area_chart_svg(const AreaChart& chart);

// Points with x and y, the first one marked.
struct ScatterChart {
  struct Point {
    double x = 0, y = 0;
    std::string label;
  };
  std::string title, x_label, y_label;
  std::vector<Point> points;
};
std::string scatter_svg(const ScatterChart& chart);

// A rank a row, time to the right; forwards, backwards and weight halves in three colours, numbers where they fit.
std::string pipeline_svg(const PipelinePlan& plan, const PipelineRun& run, const std::string& title);

}  // namespace intarsia::plan
