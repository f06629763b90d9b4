#include "intarsia/train/monitors.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"

namespace intarsia::train {
namespace {

namespace fs = std::filesystem;

// DeepSpeed's names of what it writes of every update, in the order of values_of(); the last one with fp16 only.
constexpr std::array kTags = {"Train/Samples/train_loss", "Train/Samples/lr", "Train/Samples/loss_scale"};

std::array<double, 3> values_of(const Metrics& metrics) { return {metrics.loss, metrics.lr, metrics.loss_scale}; }

std::string folder_of(const MonitorSection& section, const std::string& run, const char* inside) {
  return (section.output_path.empty() ? fs::path(run) / inside / section.job_name
                                      : fs::path(section.output_path) / section.job_name)
      .string();
}

// Runs `action`; when it cannot write, says so and returns false.
bool attempt(const std::string& what, const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    log_warning(concat(what, " is not written any more: ", error.what(), "; training goes on"));
    return false;
  }
}

constexpr std::uint64_t kMaxCsvBytes = std::uint64_t{1} << 30;

// The length of a file's text without its last lines that speak of more than `samples` samples, or that are torn.
std::size_t kept_length(const std::string& text, std::int64_t samples) {
  std::size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  while (end > 0) {
    const std::size_t begin = end < 2 ? 0 : text.rfind('\n', end - 2) + 1;
    const std::string_view line(text.data() + begin, end - begin);
    if (line.empty() || line[0] < '0' || line[0] > '9') break;
    if (std::strtoll(text.c_str() + begin, nullptr, 10) <= samples) break;
    end = begin;
  }
  return end;
}

}  // namespace

CsvSeries::CsvSeries(const std::string& folder, const std::string& tag, std::int64_t samples) {
  std::error_code error;
  fs::create_directories(folder, error);
  INTARSIA_CHECK(kIo, !error, folder, ": cannot be created: ", error.message());
  std::string name = tag;
  std::ranges::replace(name, '/', '_');
  path_ = (fs::path(folder) / (name + ".csv")).string();
  if (samples > 0 && fs::exists(path_)) {
    const std::string text = io::read_text_file(path_, kMaxCsvBytes);
    const std::size_t kept = kept_length(text, samples);
    if (kept < text.size()) io::write_file_atomic(path_, std::string_view(text).substr(0, kept));
  }
  file_ = io::Fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file_.is_open()) io::fail_io("open", path_, errno);
  if (io::file_size(file_, path_) == 0)
    io::write_all(file_, path_, io::as_bytes(concat("step,", tag.substr(tag.rfind('/') + 1), "\r\n")));
}

void CsvSeries::add(std::int64_t samples, double value) {
  io::write_all(file_, path_, io::as_bytes(concat(samples, ",", shortest(value), "\r\n")));
}

Monitors::Monitors(const MonitorOptions& options, const std::string& run, std::int64_t step, std::int64_t samples,
                   double now)
    : num_tags_(options.loss_scale ? kTags.size() : kTags.size() - 1) {
  // RUN is this run's own, so what its files say of later steps is void, also when the run begins anew.
  if (options.events) {
    const std::string folder = (fs::path(run) / "tb").string();
    attempt(folder, [&] { by_steps_.emplace(folder, now, step + 1); });
  }
  if (options.tensorboard.enabled) {
    const std::string folder = folder_of(options.tensorboard, run, "tb");
    attempt(folder, [&] { by_samples_.emplace(folder, now, samples > 0 ? samples + 1 : 0); });
  }
  if (options.csv.enabled) {
    const std::string folder = folder_of(options.csv, run, "csv");
    const bool opened = attempt(folder, [&] {
      for (std::size_t i = 0; i < num_tags_; ++i) csv_.emplace_back(folder, kTags.at(i), samples);
    });
    if (!opened) csv_.clear();
  }
}

void Monitors::write(const Metrics& metrics, std::int64_t samples) {
  write_by_steps(metrics);
  write_by_samples(metrics, samples);
}

void Monitors::write_by_steps(const Metrics& metrics) {
  if (!by_steps_) return;
  std::vector<formats::ScalarValue> values;
  const auto put = [&](const char* tag, double value) { values.push_back({tag, static_cast<float>(value)}); };
  put("train/loss", metrics.loss);
  put("train/learning_rate", metrics.lr);
  put("train/grad_norm", metrics.grad_norm);
  if (metrics.loss_scale != 1) put("train/loss_scale", metrics.loss_scale);
  put("speed/tokens_per_s", metrics.tokens_per_s);
  put("speed/step_seconds", metrics.step_seconds);
  put("memory/peak_bytes", static_cast<double>(metrics.peak_bytes));
  if (metrics.pss_bytes) put("memory/pss_bytes", static_cast<double>(*metrics.pss_bytes));
  if (metrics.eval_loss) {
    put("eval/loss", *metrics.eval_loss);
    put("eval/perplexity", std::exp(*metrics.eval_loss));
  }
  if (!attempt(by_steps_->path(), [&] { by_steps_->write(metrics.time, metrics.step, values); })) by_steps_.reset();
}

void Monitors::write_by_samples(const Metrics& metrics, std::int64_t samples) {
  const std::array<double, 3> all = values_of(metrics);
  if (by_samples_) {
    std::vector<formats::ScalarValue> values;
    for (std::size_t i = 0; i < num_tags_; ++i) values.push_back({kTags.at(i), static_cast<float>(all.at(i))});
    if (!attempt(by_samples_->path(), [&] { by_samples_->write(metrics.time, samples, values); })) by_samples_.reset();
  }
  const auto write_csv = [&] {
    for (std::size_t i = 0; i < csv_.size(); ++i) csv_[i].add(samples, all.at(i));
  };
  if (!csv_.empty() && !attempt("csv_monitor", write_csv)) csv_.clear();
}

}  // namespace intarsia::train
