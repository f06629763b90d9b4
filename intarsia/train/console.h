// What a person sees of a run: banner, one progress line, end. Standard error; rank 0 only.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/train/evaluate.h"
#include "intarsia/train/job.h"
#include "intarsia/train/metrics.h"

namespace intarsia::train {

class Console {
 public:
  // On a terminal the progress line is redrawn; elsewhere each is a line of its own.
  explicit Console(const TrainJob& job);

  // Layout, parameters, tokens per step, memory per rank, limits in force, notes of the configuration.
  void banner(const std::string& run, const std::string& backend);
  static std::string banner_text(const TrainJob& job, const std::string& run, const std::string& backend);
  // Loss, rate, norm, speed, memory and time left. `logged`: this step is due for a line off a terminal.
  void progress(const Metrics& metrics, bool logged);
  void evaluation(std::int64_t step, const Evaluation& evaluation);
  // plan's number beside the meter's, bytes of the rank that needs most.
  void predicted_memory(std::int64_t measured);
  // A line of its own.
  void note(const std::string& text);

 private:
  void write(const std::string& text);
  void clear_line();

  const TrainJob& job_;
  bool terminal_;
  bool drawn_ = false;
  double smoothed_step_seconds_ = 0;
};

// "3m 20s".
std::string format_duration(double seconds);

}  // namespace intarsia::train
