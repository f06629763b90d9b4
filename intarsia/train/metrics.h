// metrics.jsonl: one object per optimizer step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace intarsia::train {

struct Metrics {
  std::int64_t step = 0;
  double epoch = 0;  // passes over the data so far
  double time = 0;   // seconds since 1970
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double clip_factor = 1;
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;
  std::int64_t tokens = 0;  // targets of this step
  std::int64_t tokens_total = 0;
  double tokens_per_s = 0;
  double step_seconds = 0;
  double comm_seconds = 0;          // waited in operations of rank 0; what went on behind computation is not in it
  double comm_exposed_seconds = 0;  // the same: the time of what is hidden is not measured
  double data_seconds = 0;
  std::int64_t peak_bytes = 0;                 // largest rank, by the meter
  std::optional<std::int64_t> pss_bytes = {};  // all ranks of the host; measured at logged steps
  std::optional<double> eval_loss = {};
};

// One line of JSON, numbers in shortest round-trip form; null for what is unknown or not finite.
std::string metrics_line(const Metrics& metrics);

// The loss of each step that a metrics.jsonl holds, as far as it is known. Lines that are not ours are left out.
struct LossPoint {
  std::int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> eval_loss;
};
std::vector<LossPoint> read_losses(const std::string& path);

// Removes lines (of samples.jsonl, too) of steps after `step`, which a resumed run makes again. A missing file is fine.
// Errors: kIo.
void cut_metrics(const std::string& path, std::int64_t step);

}  // namespace intarsia::train
