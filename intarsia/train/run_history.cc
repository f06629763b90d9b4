#include "intarsia/train/run_history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

namespace intarsia::train {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// A step that a file claims; beyond what a double counts exactly it is none.
std::optional<std::int64_t> step_of(const Json& line) {
  const auto step = line.is_object() ? number_of(line, "step") : std::nullopt;
  if (!step || !(*step >= 0 && *step < 9e15)) return std::nullopt;
  return static_cast<std::int64_t>(*step);
}

template <typename T>
void keep_last(std::deque<T>& list, T item, std::size_t count) {
  list.push_back(std::move(item));
  if (list.size() > count) list.pop_front();
}

}  // namespace

std::string sample_line(const Sample& sample) {
  const Json line = {{"step", sample.step}, {"prompt", sample.prompt}, {"text", sample.text}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void RunHistory::add_metrics(std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  const auto step = step_of(line);
  if (!step) return;
  const auto x = static_cast<double>(*step);
  const auto add = [&](const char* key, plan::Series& series) {
    const auto value = number_of(line, key);
    if (value) series.add(x, *value);
    return value;
  };
  last_step = *step;
  ++steps;
  add("loss", loss);
  add("lr", lr);
  add("grad_norm", grad_norm);
  add("tokens_per_s", tokens_per_s);
  add("comm_seconds", comm_seconds);
  add("data_seconds", data_seconds);
  add("pss_bytes", pss_bytes);
  seconds += add("step_seconds", step_seconds).value_or(0);
  highest_peak = std::max(highest_peak, add("peak_bytes", peak_bytes).value_or(0));
  scale_moved = add("loss_scale", loss_scale).value_or(1) != 1 || scale_moved;
  tokens_total = number_of(line, "tokens_total").value_or(tokens_total);
  const auto skip = line.find("skipped");
  if (skip != line.end() && *skip == true) ++skipped;
  if (const auto evaluated = add("eval_loss", eval_loss)) keep_last(evaluations, {*step, *evaluated}, kKeptEvaluations);
}

void RunHistory::add_sample(std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  const auto step = step_of(line);
  if (!step) return;
  const auto word = [&](const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  keep_last(samples, {*step, word("prompt"), word("text")}, kKeptSamples);
}

RunHistory RunHistory::read(const std::string& run) {
  RunHistory history;
  std::ifstream metrics(std::filesystem::path(run) / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) history.add_metrics(line);
  std::ifstream samples(std::filesystem::path(run) / "samples.jsonl");
  for (std::string line; std::getline(samples, line);) history.add_sample(line);
  return history;
}

}  // namespace intarsia::train
