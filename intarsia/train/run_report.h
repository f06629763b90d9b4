// RUN/report.html and loss.svg: a run as pictures, from what it wrote down.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/train/run_history.h"

namespace intarsia::train {

struct RunFacts {
  std::string title;                // the model's name
  std::string status;               // "step 40 of 100"
  std::string banner;               // layout, data, batch, memory, as on the console
  std::string config_json;          // the resolved configuration
  std::int64_t predicted_peak = 0;  // bytes of a rank; 0: not predicted
};

// A page of its own: nothing from elsewhere, no script (its own policy forbids both), light and dark and in print. All
// texts are escaped. Its size does not grow with the length of the run.
std::string run_report_html(const RunHistory& history, const RunFacts& facts);

// Training and evaluation loss over steps, on white ground.
std::string loss_plot(const RunHistory& history, const std::string& title);

}  // namespace intarsia::train
