#include "intarsia/train/metrics.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/base/text.h"
#include "intarsia/io/file.h"

namespace intarsia::train {
namespace {

// Keys in the order in which people read them.
class Line {
 public:
  void number(const char* key, double value) { put(key, std::isfinite(value) ? shortest(value) : "null"); }
  void integer(const char* key, std::int64_t value) { put(key, std::to_string(value)); }
  void word(const char* key, const char* value) { put(key, value); }
  std::string text() const { return text_ + "}"; }

 private:
  void put(const char* key, const std::string& value) {
    text_ += text_.size() > 1 ? ", \"" : "\"";
    text_.append(key).append("\": ").append(value);
  }
  std::string text_ = "{";
};

std::optional<double> number_of(const nlohmann::json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace

std::string metrics_line(const Metrics& m) {
  Line line;
  line.integer("step", m.step);
  line.number("epoch", m.epoch);
  line.number("time", m.time);
  line.number("loss", m.loss);
  line.number("grad_norm", m.grad_norm);
  line.number("clip_factor", m.clip_factor);
  line.number("lr", m.lr);
  line.number("loss_scale", m.loss_scale);
  line.word("skipped", m.skipped ? "true" : "false");
  line.integer("tokens", m.tokens);
  line.integer("tokens_total", m.tokens_total);
  line.number("tokens_per_s", m.tokens_per_s);
  line.number("step_seconds", m.step_seconds);
  line.number("comm_seconds", m.comm_seconds);
  line.number("comm_exposed_seconds", m.comm_exposed_seconds);
  line.number("data_seconds", m.data_seconds);
  line.integer("peak_bytes", m.peak_bytes);
  if (m.pss_bytes) {
    line.integer("pss_bytes", *m.pss_bytes);
  } else {
    line.word("pss_bytes", "null");
  }
  line.word("mfu", "null");  // the peak of this processor is not known
  if (m.eval_loss) line.number("eval_loss", *m.eval_loss);
  return line.text();
}

std::vector<LossPoint> read_losses(const std::string& path) {
  std::vector<LossPoint> points;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    const std::optional<double> step = line.is_object() ? number_of(line, "step") : std::nullopt;
    if (!step) continue;
    points.push_back({static_cast<std::int64_t>(*step), number_of(line, "loss"), number_of(line, "eval_loss")});
  }
  return points;
}

void cut_metrics(const std::string& path, std::int64_t step) {
  std::ifstream file(path);
  if (!file) return;
  std::string kept;
  for (std::string text; std::getline(file, text);) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    const std::optional<double> at = line.is_object() ? number_of(line, "step") : std::nullopt;
    if (at && *at <= static_cast<double>(step)) kept += text + "\n";
  }
  io::write_file_atomic(path, kept);
}

}  // namespace intarsia::train
