#include "intarsia/train/console.h"

#include <unistd.h>

#include <cmath>
#include <iomanip>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::train {
namespace {

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string significant(double value) {
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return out.str();
}

std::string recompute_words(const plan::RunPlan& plan) {
  const std::string words = plan::describe(plan.recompute);
  return words.empty() ? words : ", recomputed: " + words;
}

std::string count(std::int64_t value);

// A line for adapters; empty without.
std::string lora_line(const TrainJob& job) {
  if (job.lora.r == 0) return "";
  const double dropout = job.lora.dropout;
  std::int64_t trained = 0;
  for (const plan::ParamSpec& param : job.plan.model.params) trained += param.frozen ? 0 : param.numel();
  return concat("adapters   LoRA of rank ", job.lora.r, ", alpha ", shortest(job.lora.alpha),
                dropout > 0 ? concat(", dropout ", shortest(dropout)) : "", ", on ", join(job.lora.targets), ": ",
                count(trained), " parameters are trained\n");
}

std::string vocabulary_line(const TrainJob& job) {
  const std::int64_t rows = job.model.vocab_size, before = job.vocab_in_files;
  if (job.random_weights || before == 0 || rows == before) return "";
  return concat("vocabulary ", rows, " rows, ", before, " in the files; ",
                rows > before ? "new ones start as the mean of the old\n" : "the last are left out\n");
}

std::string count(std::int64_t value) {
  if (value >= 1'000'000'000) return fixed(static_cast<double>(value) / 1e9, 2) + "B";
  if (value >= 1'000'000) return fixed(static_cast<double>(value) / 1e6, 2) + "M";
  return std::to_string(value);
}

std::string optimizer_text(const plan::OptimizerPlan& optimizer) {
  using plan::OptimizerKind;
  const auto betas = [&] { return concat(", betas ", shortest(optimizer.beta1), " ", shortest(optimizer.beta2)); };
  const auto momentum = [&] { return concat(", momentum ", shortest(optimizer.momentum)); };
  switch (optimizer.kind) {
    case OptimizerKind::kAdam:
      return (optimizer.decoupled_decay ? "AdamW" : "Adam") + betas();
    case OptimizerKind::kSgd:
      return "SGD" + momentum();
    case OptimizerKind::kLion:
      return "Lion" + betas();
    case OptimizerKind::kAdagrad:
      return "Adagrad";
    case OptimizerKind::kLamb:
      return "LAMB" + betas();
    case OptimizerKind::kAdafactor:
      return "Adafactor";
    case OptimizerKind::kMuon:
      return "Muon" + momentum() + " (AdamW for vectors, embedding and head)";
  }
  return "";
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, std::round(seconds)));
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return std::to_string(whole / 60) + "m " + std::to_string(whole % 60) + "s";
  return std::to_string(whole / 3600) + "h " + std::to_string(whole % 3600 / 60) + "m";
}

Console::Console(const TrainJob& job) : job_(job), terminal_(::isatty(STDERR_FILENO) == 1) {}

void Console::write(const std::string& text) {
  // What standard error does not take is lost: there is nowhere left to say so.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void Console::clear_line() {
  if (drawn_) write("\r\x1b[K");
  drawn_ = false;
}

void Console::note(const std::string& text) {
  clear_line();
  write(text + "\n");
}

namespace {

// A line for what a run has beyond the usual; empty otherwise.
std::string precision_line(const plan::RunPlan& plan) {
  std::string text;
  const plan::LossScalePlan& scale = plan.loss_scale;
  if (scale.dynamic) {
    text = concat("loss scale ", shortest(scale.initial), ", dynamic: doubles after ", scale.window,
                  " steps without overflow, halves after ", scale.hysteresis, " overflows",
                  scale.consecutive_hysteresis ? " in a row" : "", ", at least ", shortest(scale.min), "\n");
  } else if (scale.initial != 1) {
    text = concat("loss scale ", shortest(scale.initial), ", static\n");
  }
  if (plan.reproducible)
    text += concat("bits       the same on 1 to ", plan.logical_order().count(),
                   " ranks (powers of two): ", plan.logical_order().count(), " logical micro-batches a step\n");
  return text;
}

}  // namespace

void Console::banner(const std::string& run, const std::string& backend) { note(banner_text(job_, run, backend)); }

std::string Console::banner_text(const TrainJob& job, const std::string& run, const std::string& backend) {
  const plan::RunPlan& plan = job.plan;
  std::ostringstream out;
  const std::int64_t tokens = plan.global_batch() * plan.seq_len;
  const bool listed = plan.schedule.kind == plan::ScheduleKind::kList;
  const std::string rate = listed ? "from the list lr_schedule" : shortest(plan.optimizer.lr);
  out << "model      " << job.run_name << " (" << plan.model.family << ")"
      << ", " << count(plan.model.numel()) << " parameters"
      << (job.random_weights ? ", random weights (seed " + std::to_string(plan.seed) + ")" : "") << "\n"
      << vocabulary_line(job) << lora_line(job) << "layout     " << plan.ranks << " rank" << (plan.ranks > 1 ? "s" : "")
      << " (" << backend << "), ZeRO " << plan::describe(plan.placement, plan.stage, plan.grid()) << ", "
      << short_name(plan.compute_dtype) << (plan.autocast ? concat(" (autocast ", short_name(*plan.autocast), ")") : "")
      << ", " << plan.threads << " thread" << (plan.threads > 1 ? "s" : "") << " a rank" << recompute_words(plan)
      << "\n"
      << "data       " << job.dataset->summary().describe(job.dataset->num_samples(), job.dataset->seq_len()) << "\n"
      << "batch      " << plan.global_batch() << " samples x " << plan.seq_len << " tokens = " << tokens
      << " tokens a step (" << plan.micro_batch << " a rank x " << plan.accumulation << " micro-steps x " << plan.ranks
      << " ranks), " << plan.steps << " steps\n"
      << "optimizer  " << optimizer_text(plan.optimizer) << ", lr " << rate << ", weight decay "
      << shortest(plan.optimizer.weight_decay) << "; gradient norm "
      << (plan.gradient_clipping > 0 ? "clipped to " + shortest(plan.gradient_clipping) : "not clipped") << "\n"
      << precision_line(plan) << "memory     " << format_bytes(plan::state_bytes(plan))
      << " a rank for parameters, gradients and optimizer state; " << job.memory_text << "\n"
      << "run        " << run << "\n";
  for (const std::string& line : job.notes) out << line << "\n";
  return out.str();
}

void Console::progress(const Metrics& m, bool logged) {
  smoothed_step_seconds_ =
      smoothed_step_seconds_ == 0 ? m.step_seconds : 0.9 * smoothed_step_seconds_ + 0.1 * m.step_seconds;
  if (!terminal_ && !logged) return;
  std::ostringstream out;
  out << "step " << m.step << "/" << job_.plan.steps << "  loss " << fixed(m.loss, 4) << "  lr " << significant(m.lr)
      << "  norm " << significant(m.grad_norm) << (m.skipped ? "  skipped" : "") << "  "
      << static_cast<std::int64_t>(m.tokens_per_s) << " tokens/s  " << format_bytes(m.peak_bytes) << "  "
      << format_duration(smoothed_step_seconds_ * static_cast<double>(job_.plan.steps - m.step)) << " left";
  if (!terminal_) return note(out.str());
  write("\r\x1b[K" + out.str());
  drawn_ = true;
}

void Console::predicted_memory(std::int64_t measured) {
  std::ostringstream out;
  out << "memory     a rank's peak: predicted " << format_bytes(job_.predicted_peak) << ", measured "
      << format_bytes(measured) << " ("
      << fixed(100 * static_cast<double>(job_.predicted_peak) / static_cast<double>(measured) - 100, 1) << " %)";
  note(out.str());
}

void Console::evaluation(std::int64_t step, const Evaluation& evaluation) {
  std::ostringstream out;
  out << "step " << step << "  evaluation loss " << fixed(evaluation.loss, 4) << "  perplexity "
      << fixed(evaluation.perplexity, 2);
  if (evaluation.bits_per_byte) out << "  bits per byte " << fixed(*evaluation.bits_per_byte, 4);
  out << "  (" << evaluation.tokens << " tokens)";
  note(out.str());
}

}  // namespace intarsia::train
