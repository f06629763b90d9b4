// The report as pictures: one SVG, or a self-contained page.
#pragma once

#include <string>

#include "intarsia/plan/report/charts.h"
#include "intarsia/plan/report/plan_report.h"

namespace intarsia::plan {

// Memory of a rank by stage, with the limit of a rank as a line and what each stage saves.
std::string stages_svg(const PlanReport& report);

// The ZeRO paper's picture for any model: states of `parameters` on `devices` by stage, against `limit_bytes`. GB.
std::string zero_stages_svg(double parameters, int devices, double limit_bytes);

// A page without network or scripts from elsewhere: memory by stage and over a step, volumes of traffic, and where
// layouts were searched the pipeline, a sortable table and time against memory.
std::string report_html(const PlanReport& report);

}  // namespace intarsia::plan
