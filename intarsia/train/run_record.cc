#include "intarsia/train/run_record.h"

#include <chrono>
#include <exception>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/io/file.h"
#include "intarsia/train/run_report.h"

namespace intarsia::train {
namespace {

namespace fs = std::filesystem;

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// `run`, whose files hold nothing of steps after `step` any more.
const std::string& cut(const std::string& run, std::int64_t step) {
  for (const char* name : {"metrics.jsonl", "samples.jsonl"}) cut_metrics((fs::path(run) / name).string(), step);
  return run;
}

}  // namespace

RunRecord::RunRecord(const TrainJob& job, const std::string& run, std::int64_t step, std::int64_t samples,
                     std::string banner)
    : job_(job),
      run_(cut(run, step)),
      banner_(std::move(banner)),
      history_(RunHistory::read(run)),
      metrics_(path("metrics.jsonl"), std::ios::app),
      monitors_(job.monitors, run, step, samples, unix_time()) {
  io::write_file_atomic(path("config.resolved.json"), job.config_json);
}

std::string RunRecord::path(const char* name) const { return (fs::path(run_) / name).string(); }

void RunRecord::add(const Metrics& metrics, std::int64_t samples) {
  const std::string line = metrics_line(metrics);
  metrics_ << line << "\n" << std::flush;
  if (!metrics_) log_warning(concat(path("metrics.jsonl"), " cannot be written; training goes on"));
  history_.add_metrics(line);
  monitors_.write(metrics, samples);
}

void RunRecord::add(const std::vector<Sample>& samples) {
  if (samples.empty()) return;
  if (!samples_.is_open()) samples_.open(path("samples.jsonl"), std::ios::app);
  for (const Sample& sample : samples) {
    const std::string line = sample_line(sample);
    samples_ << line << "\n" << std::flush;
    history_.add_sample(line);
  }
  if (!samples_) log_warning(concat(path("samples.jsonl"), " cannot be written; training goes on"));
}

void RunRecord::write_report(const std::string& status) {
  try {
    io::write_file_atomic(path("loss.svg"), loss_plot(history_, job_.run_name));
    io::write_file_atomic(path("report.html"), run_report_html(history_, {.title = job_.run_name,
                                                                          .status = status,
                                                                          .banner = banner_,
                                                                          .config_json = job_.config_json,
                                                                          .predicted_peak = job_.predicted_peak}));
  } catch (const std::exception& error) {
    if (!warned_) log_warning(concat("the report is not written: ", error.what(), "; training goes on"));
    warned_ = true;
  }
}

}  // namespace intarsia::train
