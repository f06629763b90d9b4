// What metrics.jsonl and samples.jsonl say of a run, in memory that does not grow with its length: for the report.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "intarsia/plan/report/line_chart.h"

namespace intarsia::train {

// A text that the model wrote while it was trained.
struct Sample {
  std::int64_t step = 0;
  std::string prompt, text;
};

// One line of JSON for samples.jsonl. What is not UTF-8 becomes U+FFFD.
std::string sample_line(const Sample& sample);

struct RunHistory {
  static constexpr std::size_t kKeptEvaluations = 50, kKeptSamples = 40;

  // A line of metrics.jsonl or of samples.jsonl. One that is not ours, or torn, changes nothing.
  void add_metrics(std::string_view line);
  void add_sample(std::string_view line);
  // Both files of RUN, as far as they are there.
  static RunHistory read(const std::string& run);

  plan::Series loss, eval_loss, lr, grad_norm, loss_scale, tokens_per_s, step_seconds, comm_seconds, data_seconds,
      peak_bytes, pss_bytes;
  std::int64_t last_step = 0, steps = 0, skipped = 0;
  double tokens_total = 0;
  double seconds = 0;        // of all steps
  double highest_peak = 0;   // bytes
  bool scale_moved = false;  // the loss scale is not 1 throughout
  struct EvaluationLine {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::deque<EvaluationLine> evaluations;  // the last ones
  std::deque<Sample> samples;              // the last ones
};

}  // namespace intarsia::train
