// All that a run writes about itself: metrics.jsonl, samples.jsonl, monitors, report.html, loss.svg. Rank 0 only. What
// cannot be written is a warning; it never stops training.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "intarsia/train/job.h"
#include "intarsia/train/metrics.h"
#include "intarsia/train/monitors.h"
#include "intarsia/train/run_history.h"

namespace intarsia::train {

class RunRecord {
 public:
  // Continues RUN's files behind step `step`; what they say of later steps, or of an earlier run that this one
  // replaces, is removed. `samples`: of the run so far. `banner`: for the report.
  // Errors: kIo when RUN's own files cannot be opened. `job` must outlive it.
  RunRecord(const TrainJob& job, const std::string& run, std::int64_t step, std::int64_t samples, std::string banner);

  void add(const Metrics& metrics, std::int64_t samples);
  void add(const std::vector<Sample>& samples);
  // report.html and loss.svg anew. `status`: a word on where the run is.
  void write_report(const std::string& status);

 private:
  std::string path(const char* name) const;

  const TrainJob& job_;
  std::string run_, banner_;
  RunHistory history_;
  std::ofstream metrics_, samples_;
  Monitors monitors_;
  bool warned_ = false;
};

}  // namespace intarsia::train
