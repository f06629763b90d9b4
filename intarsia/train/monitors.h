// Metrics in the forms that other tools read: TensorBoard's event files and DeepSpeed's CSV files. Rank 0 only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/formats/tensorboard/event_file.h"
#include "intarsia/io/file.h"
#include "intarsia/train/metrics.h"

namespace intarsia::train {

// A monitor section of the DeepSpeed JSON: files go to output_path/job_name, without output_path into RUN.
struct MonitorSection {
  bool enabled = false;
  std::string output_path, job_name;
};

struct MonitorOptions {
  bool events = true;          // RUN/tb, by steps
  MonitorSection tensorboard;  // beside it DeepSpeed's tags, by samples
  MonitorSection csv;          // DeepSpeed's tags, by samples, a file a tag
  bool loss_scale = false;     // there is one (fp16): DeepSpeed's tags include it
};

// A CSV file of one tag, "step,NAME" and then "SAMPLES,VALUE" a line, as DeepSpeed's csv_monitor writes them. An
// existing file is continued; its last lines about more than `samples` samples, which a resumed run makes again, are
// cut off. Source: deepspeed/monitor/csv_monitor.py, release 0.19.8.
class CsvSeries {
 public:
  // Errors: kIo.
  CsvSeries(const std::string& folder, const std::string& tag, std::int64_t samples);
  void add(std::int64_t samples, double value);

 private:
  std::string path_;
  io::Fd file_;
};

// A monitor that cannot write says so once and is silent from then on: training goes on.
class Monitors {
 public:
  // `step` and `samples`: what the run resumes from; 0 for a new one.
  Monitors(const MonitorOptions& options, const std::string& run, std::int64_t step, std::int64_t samples, double now);
  // `samples`: of the run so far.
  void write(const Metrics& metrics, std::int64_t samples);

 private:
  void write_by_steps(const Metrics& metrics);
  void write_by_samples(const Metrics& metrics, std::int64_t samples);

  std::optional<formats::EventFile> by_steps_, by_samples_;
  std::vector<CsvSeries> csv_;
  std::size_t num_tags_;  // of DeepSpeed's
};

}  // namespace intarsia::train
