#include "intarsia/train/loop.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/export_hf.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/io/file.h"
#include "intarsia/nn/recompute/recompute.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/memory_meter.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/console.h"
#include "intarsia/train/evaluate.h"
#include "intarsia/train/evaluation_history.h"
#include "intarsia/train/metrics.h"
#include "intarsia/train/process.h"
#include "intarsia/train/profile.h"
#include "intarsia/train/resume.h"
#include "intarsia/train/run_folder.h"
#include "intarsia/train/run_record.h"
#include "intarsia/train/samples.h"
#include "intarsia/train/step.h"

namespace intarsia::train {
namespace {

namespace fs = std::filesystem;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Slots and buffers have grown by then.
constexpr std::int64_t kStepsUntilSteady = 3;

bool every(std::int64_t interval, std::int64_t step) { return interval > 0 && step % interval == 0; }

class Loop {
 public:
  Loop(const TrainJob& job, const comm::DataAxes& axes)
      : job_(job),
        profile_(job.profile.any() ? std::make_unique<StepProfile>(job.plan) : nullptr),
        watched_(axes, profile_.get()),
        axes_(watched_.axes()),
        axis_(axes_.world),
        console_(job),
        sampler_(job.sampler),
        is_first_(axis_.rank() == 0),
        collectives_(job.profile.comms_ops) {}

  RunEnd run();

 private:
  void open_run();
  StepResult step(const data::Window& window);
  void record(const StepResult& result, double seconds, double waited_before);
  void tell_profile();
  void evaluate_now(Metrics& metrics);
  void recall_evaluations();
  void sample_now();
  void write_report(const std::string& state);
  bool stopped_early() const {
    return job_.loop.early_stopping > 0 && history_.since_best() >= job_.loop.early_stopping;
  }
  void export_model(const char* name, const optim::Optimizer* average = nullptr);
  checkpoint::SaveRequest save_request() const;
  void save();
  void save_on_the_way();
  void settle_save(bool wait);
  void without_stopping(std::int64_t step, const std::function<void()>& save);
  RunEnd finish(bool stopped);
  std::string base_name() const { return job_.model_directory.empty() ? job_.run_name : job_.model_directory; }
  std::string path(const char* name) const { return (fs::path(run_) / name).string(); }

  const TrainJob& job_;
  std::unique_ptr<StepProfile> profile_;  // null: nobody asked
  WatchedAxes watched_;
  comm::DataAxes axes_;
  comm::Communicator& axis_;  // the world
  Console console_;
  data::Sampler sampler_;
  bool is_first_;
  std::string run_;
  std::optional<RunLock> lock_;  // rank 0's
  Assembly assembly_;
  checkpoint::Progress progress_;
  std::optional<checkpoint::BackgroundSaver> saver_;
  std::int64_t saved_step_ = -1;
  std::int64_t steps_here_ = 0;      // since this process began
  std::optional<RunRecord> record_;  // rank 0's
  EvaluationHistory history_;
  CollectiveTotals collectives_;
};

void Loop::open_run() {
  // Rank 0 chooses, so that ranks of several hosts never end up in two folders.
  std::string chosen;
  checkpoint::all_or_none(axis_, "opening the run's folder", [&] {
    if (!is_first_) return;
    chosen = job_.out.empty() ? new_run_folder(job_.run_name) : job_.out;
    make_run_folder(chosen);
    lock_.emplace(chosen);
    const std::string root = (fs::path(chosen) / "checkpoints").string();
    if (job_.loop.overwrite) fs::remove_all(root);
    INTARSIA_CHECK(kUsage, !job_.loop.fresh || !checkpoint::holds_checkpoints(root), "--fresh: ", printable(chosen),
                   " holds checkpoints, which this run would go on from; leave out --fresh, give another folder with "
                   "--out, or remove them first with --overwrite");
  });
  run_ = checkpoint::broadcast_text(axis_, chosen);
}

StepResult Loop::step(const data::Window& window) {
  double data_seconds = 0;
  const auto next_batch = [&](std::int64_t micro) {
    const double start = seconds_now();
    data::Batch batch = data::make_batch(*job_.dataset, sampler_, window, axis_.rank(), micro);
    data_seconds += seconds_now() - start;
    return batch;
  };
  const bool logged = every(job_.loop.log_every, progress_.step + 1) || progress_.step == 0;
  const auto report = [&] {
    return RankReport{
        .stop = stop_requested(),
        .peak_bytes = tensor::read_memory(axis_.rank()).total_peak + tensor::device_peak_bytes(job_.plan.device),
        .pss_bytes = logged ? pss_bytes() : 0,
        .data_seconds = data_seconds};
  };
  GradientHook hook;
  if (!job_.loop.dump_gradients.empty() && progress_.step + 1 == job_.loop.dump_step)
    hook = [&](double average) { checkpoint::dump_gradients(*assembly_.engine, average, job_.loop.dump_gradients); };
  return train_step(*assembly_.engine, *assembly_.model, *assembly_.optimizer, *assembly_.loss_scale,
                    sampler_.micro_steps(window), next_batch, report, hook, profile_.get());
}

// Where the step's time went, as far as it was asked for; forgets it.
void Loop::tell_profile() {
  if (profile_ == nullptr) return;
  const ProfileOptions& asked = job_.profile;
  if (is_first_) {
    for (const Span& span : profile_->spans()) {
      if (!asked.comms || !collectives_.counts(span)) continue;
      collectives_.add(span);
      if (asked.comms_verbose)
        console_.note(concat("comm       ", span.name, ", ", span.bytes, " bytes, ", span.ranks,
                             " ranks: ", shortest(std::round(1e6 * span.seconds())), " us, waited ",
                             shortest(std::round(1e6 * span.waited)), " us"));
    }
    const bool logged = every(job_.loop.log_every, progress_.step) || progress_.step == 1;
    if (asked.wall_clock && logged) console_.note(phases_line(*profile_));
    if (progress_.step == asked.flops_step) {
      const plan::StepReplay replay =
          plan::replay_step(job_.plan, job_.model, {.isolated = job_.dataset->is_isolated()});
      const std::string text = profile_text(*profile_, job_.plan, replay, asked.flops_units);
      if (asked.flops_file.empty()) {
        console_.note(text);
      } else {
        io::write_file_atomic(asked.flops_file, text);
      }
    }
  }
  profile_->clear();
}

void Loop::evaluate_now(Metrics& metrics) {
  if (job_.eval_dataset == nullptr) return;
  const Evaluation evaluation = evaluate(*assembly_.engine, *assembly_.model, *job_.eval_dataset, job_.plan.micro_batch,
                                         job_.tokenizer ? &*job_.tokenizer : nullptr);
  metrics.eval_loss = evaluation.loss;
  if (is_first_) console_.evaluation(progress_.step, evaluation);
  if (history_.add(evaluation.loss) && job_.loop.save_best) export_model("best");
}

// What the run's earlier processes found, from metrics.jsonl, on all ranks.
void Loop::recall_evaluations() {
  std::string losses;
  if (is_first_)
    for (const LossPoint& point : read_losses(path("metrics.jsonl")))
      if (point.eval_loss) losses += shortest(*point.eval_loss) + " ";
  std::istringstream all(checkpoint::broadcast_text(axis_, losses));
  for (double loss = 0; all >> loss;) history_.add(loss);
}

void Loop::sample_now() {
  if (job_.samples.prompts.empty()) return;
  const std::vector<Sample> samples = write_samples(*assembly_.engine, *assembly_.model, job_, progress_.step);
  if (!record_) return;
  record_->add(samples);
  for (const Sample& sample : samples) {
    std::string line = concat("step ", progress_.step, "  sample: ", sample.prompt, " >> ", sample.text);
    std::ranges::replace(line, '\n', ' ');
    console_.note(printable(line));
  }
}

void Loop::write_report(const std::string& state) {
  if (record_) record_->write_report(concat(state, ", step ", progress_.step, " of ", job_.plan.steps));
}

void Loop::record(const StepResult& result, double seconds, double waited_before) {
  Metrics metrics{.step = progress_.step,
                  .epoch = static_cast<double>(progress_.data_position) / static_cast<double>(job_.sampler.num_samples),
                  .time = unix_time(),
                  .loss = result.loss,
                  .grad_norm = result.grad_norm,
                  .clip_factor = result.clip_factor,
                  .lr = result.lr,
                  .loss_scale = result.loss_scale,
                  .skipped = result.skipped,
                  .tokens = result.tokens,
                  .tokens_total = progress_.tokens,
                  .tokens_per_s = static_cast<double>(result.tokens) / seconds,
                  .step_seconds = seconds,
                  .comm_seconds = axis_.waited_seconds() - waited_before,
                  .data_seconds = result.data_seconds,
                  .peak_bytes = result.peak_bytes};
  metrics.comm_exposed_seconds = metrics.comm_seconds;
  if (result.pss_bytes > 0) metrics.pss_bytes = result.pss_bytes;
  if (is_first_) console_.progress(metrics, every(job_.loop.log_every, progress_.step) || progress_.step == 1);
  const bool last = progress_.step == job_.plan.steps;
  if (every(job_.loop.eval_every, progress_.step) || last) evaluate_now(metrics);
  if (every(job_.samples.every, progress_.step) || last) sample_now();
  if (!is_first_) return;
  if (result.skipped)
    console_.note(concat("step ", progress_.step, " is skipped: ",
                         result.tokens == 0 ? "it has no target token"
                         : result.bad       ? "its loss or gradient is not finite"
                                      : concat("a gradient overflowed at loss scale ", shortest(result.loss_scale),
                                               "; the next scale is ", shortest(assembly_.loss_scale->scale()))));
  record_->add(metrics, progress_.data_position);
}

checkpoint::SaveRequest Loop::save_request() const {
  return {.root = path("checkpoints"),
          .progress = progress_,
          .config = job_.config_json,
          .model_config = formats::hf_config_text(job_.model),
          .keep = static_cast<int>(job_.loop.keep),
          .keep_every = job_.loop.keep_every};
}

// The last save of a run, which must succeed.
void Loop::save() {
  settle_save(true);
  if (saved_step_ == progress_.step) return;
  checkpoint::save_checkpoint(save_request(), *assembly_.engine, *assembly_.optimizer);
  saved_step_ = progress_.step;
}

void Loop::save_on_the_way() {
  if (!job_.loop.background_save) {
    without_stopping(progress_.step, [&] { save(); });
    return;
  }
  if (!saver_) saver_.emplace(*assembly_.engine, *assembly_.optimizer);
  if (saver_->busy() && job_.loop.skip_when_saving) {
    if (is_first_)
      console_.note(concat("checkpoint of step ", progress_.step, " is skipped: that of step ", saver_->step(),
                           " is still being written"));
    return;
  }
  settle_save(true);
  without_stopping(progress_.step, [&] { saver_->start(save_request()); });
}

// What a save in the background has come to; with `wait`, when it is over.
void Loop::settle_save(bool wait) {
  if (!saver_ || !saver_->busy()) return;
  const std::int64_t step = saver_->step();
  without_stopping(step, [&] {
    if (wait) {
      saver_->wait();
      saved_step_ = step;
    } else if (saver_->poll()) {
      saved_step_ = step;
    }
  });
}

// A checkpoint that cannot be written is no reason to lose the run.
void Loop::without_stopping(std::int64_t step, const std::function<void()>& save) {
  try {
    save();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    if (is_first_)
      log_warning(concat("checkpoint of step ", step, " not saved: ", error.what(),
                         "; training goes on, earlier checkpoints are as before"));
  }
}

void Loop::export_model(const char* name, const optim::Optimizer* average) {
  checkpoint::ExportOptions options{
      .dtype = job_.plan.compute_dtype, .copy_from = job_.model_directory, .average = average};
  if (job_.lora.r == 0) return checkpoint::export_hf(*assembly_.engine, job_.model, path(name), options);
  options.dtype = DType::kF32;  // small, and as exact as the masters
  checkpoint::export_adapter(*assembly_.engine, job_.lora, job_.model_directory, path(name), options);
}

RunEnd Loop::finish(bool stopped) {
  save();
  if (is_first_ && job_.profile.comms) console_.note(collectives_.text());
  if (is_first_ && job_.loop.profile_recompute) {
    const nn::RecomputeTime time = nn::recompute_time();
    console_.note(concat("recomputed on rank 0: ", time.runs, " times, ",
                         shortest(std::round(time.seconds * 1e3) / 1e3), " s in all"));
  }
  write_report(stopped ? "stopped" : "done");
  if (stopped) {
    if (is_first_) console_.note(concat("stopped and saved at step ", progress_.step, "; the same command resumes"));
    return RunEnd::kStopped;
  }
  export_model("model");
  const bool averaged = job_.plan.optimizer.ema_decay > 0;
  if (averaged) export_model("model-ema", assembly_.optimizer.get());
  if (is_first_)
    console_.note(concat(
        "done: ", progress_.step, " steps, ", progress_.tokens, " tokens\n  report      ", path("report.html"),
        "\n  model       ", path("model"), averaged ? concat("\n  average     ", path("model-ema")) : "",
        job_.loop.save_best ? concat("\n  best        ", path("best"), ", evaluation loss ", shortest(history_.best()))
                            : "",
        "\n  try it      intarsia generate --model ",
        job_.lora.r > 0 ? concat(base_name(), " --adapter ", path("model")) : path("model"), " --prompt \"...\"",
        job_.plan.schedule.ends_with_the_run() ? "" : "\n  go on       the same command with more --steps"));
  return RunEnd::kDone;
}

RunEnd Loop::run() {
  open_run();
  assembly_ = assemble(job_, axes_);
  if (is_first_) console_.banner(run_, axis_.backend_name());
  const Resumed resumed = resume_run(job_, run_, axis_, assembly_, console_);
  progress_ = resumed.progress;
  if (resumed.is_saved) saved_step_ = progress_.step;
  if (is_first_) {
    checkpoint::clear_away(path("checkpoints"));  // now that it has been told what was passed over
    record_.emplace(job_, run_, progress_.step, progress_.data_position,
                    Console::banner_text(job_, run_, axis_.backend_name()));
  }
  recall_evaluations();
  bool stopped = false;
  while (progress_.step < job_.plan.steps && !stopped && !stopped_early()) {
    const std::optional<data::Window> window = sampler_.next_window(progress_.data_position);
    if (!window) break;
    const double start = seconds_now(), waited_before = axis_.waited_seconds();
    const StepResult result = step(*window);
    const double seconds = seconds_now() - start;
    ++progress_.step;
    progress_.data_position = window->end;
    progress_.tokens += result.tokens;
    progress_.updates = assembly_.optimizer->updates();
    if (job_.plan.loss_scale.dynamic) progress_.loss_scale = assembly_.loss_scale->state();
    const bool bad = result.bad;
    progress_.bad_steps = bad ? progress_.bad_steps + 1 : 0;
    tell_profile();
    record(result, seconds, waited_before);
    if (++steps_here_ == kStepsUntilSteady && is_first_ && job_.predicted_peak > 0)
      console_.predicted_memory(result.peak_bytes);
    if (progress_.bad_steps >= job_.loop.max_bad_steps) settle_save(true);  // of a step that was good
    if (bad && progress_.bad_steps >= job_.loop.max_bad_steps) write_report("ended, loss not finite");
    INTARSIA_CHECK(kNumeric, progress_.bad_steps < job_.loop.max_bad_steps || !bad, "the loss or the gradient was not ",
                   "finite in ", progress_.bad_steps, " steps in a row, the last one ", progress_.step, " (loss ",
                   shortest(result.loss), ", gradient norm ", shortest(result.grad_norm),
                   "); nothing of these steps went into the weights. Lower --lr, or look at the data of these steps");
    stopped = result.stop;
    settle_save(false);
    if (!stopped && every(job_.loop.save_every, progress_.step)) {
      save_on_the_way();
      write_report("running");
    }
  }
  INTARSIA_CHECK(kNumeric, stopped || progress_.bad_steps == 0, "the run ended with ", progress_.bad_steps,
                 " steps in a row whose loss or gradient was not finite: it is not saved and not exported, earlier ",
                 "checkpoints are as before. Lower --lr, or look at the data of these steps");
  if (stopped_early() && is_first_)
    console_.note(concat("ended early at step ", progress_.step, ": ", history_.since_best(),
                         " evaluations without a lower loss than ", shortest(history_.best())));
  return finish(stopped && !stopped_early() && progress_.step < job_.plan.steps);
}

}  // namespace

RunEnd run_job(const TrainJob& job, const comm::DataAxes& axes) { return Loop(job, axes).run(); }

}  // namespace intarsia::train
