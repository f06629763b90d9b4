#include "intarsia/plan/settle_open.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/time/replay_time.h"

namespace intarsia::plan {
namespace {

constexpr double kAsFast = 1.05;
constexpr std::int64_t kLargestMicro = 1 << 20;  // beyond, sizes in bytes could leave 64 bits

}  // namespace

ReplayOptions replay_options(const config::TrainConfig& config) {
  const config::RunConfig& run = config.run;
  return {.isolated = run.pack == config::Pack::kIsolate,
          .adapters_drop = config.lora.dropout > 0,
          .background_save = run.async_save != config::AsyncSave::kOff && run.save_every > 0};
}

namespace {

struct Choice {
  int stage = 0;
  std::int64_t micro = 1, accumulation = 1;
};

struct Candidate {
  Choice choice;
  std::int64_t bytes = 0;     // of a host
  double sample_seconds = 0;  // of a rank
};

class Chooser {
 public:
  Chooser(const config::Resolved& resolved, const formats::HfConfig& model, const OpenRequest& request)
      : config_(resolved.config),
        model_(model),
        request_(request),
        seq_len_(sequence_length(resolved.config.run.seq_len, model)) {}

  Candidate choose() {
    if (!config_.zero.stage_is_open) {
      micro_batches(config_.zero.stage);
    } else if (config_.run.ranks == 1) {
      micro_batches(0);
    } else {
      for (int stage = 0; stage <= 3; ++stage) micro_batches(stage);
    }
    if (fitting_.empty()) {
      if (!smallest_) throw Error(*refused_);
      return *smallest_;
    }
    const auto fastest = std::ranges::min_element(fitting_, {}, &Candidate::sample_seconds);
    const double bound = kAsFast * fastest->sample_seconds;
    std::erase_if(fitting_, [&](const Candidate& candidate) { return candidate.sample_seconds > bound; });
    return *std::ranges::min_element(fitting_, {}, &Candidate::bytes);
  }

  std::size_t tried() const { return tried_; }
  bool fits() const { return !fitting_.empty(); }

 private:
  void micro_batches(int stage) {
    const config::BatchConfig& batch = config_.batch;
    if (!batch.micro_is_open) {
      consider({stage, batch.micro_batch_size, batch.accumulation});
      return;
    }
    if (batch.total_is_given) {
      const std::int64_t share = batch.train_batch_size / config_.run.ranks;
      for (std::int64_t micro = 1; micro <= std::min(share, kLargestMicro); ++micro)
        if (share % micro == 0 && !consider({stage, micro, share / micro})) return;
      return;
    }
    for (std::int64_t micro = 1; micro <= kLargestMicro; micro *= 2)
      if (!consider({stage, micro, batch.accumulation})) return;
  }

  // False: it does not fit, and nothing larger will.
  bool consider(const Choice& choice) {
    config::TrainConfig config = config_;
    apply(choice, config);
    std::optional<RunPlan> plan;
    try {
      plan = make_run_plan(config, model_, seq_len_, 1);
    } catch (const Error& error) {  // a stage that other settings rule out
      refused_ = error;
      return false;
    }
    if (request_.backend) plan->backend = *request_.backend;
    ++tried_;
    const StepReplay replay = replay_step(*plan, model_, replay_options(config));
    const double samples = static_cast<double>(choice.micro * choice.accumulation);
    const Candidate candidate{choice, host_need(replay, request_.local_ranks).host,
                              step_seconds(replay, *plan, request_.cluster, request_.local_ranks).total() / samples};
    if (!smallest_ || candidate.bytes < smallest_->bytes) smallest_ = candidate;
    const double free = (1 - request_.margin) * static_cast<double>(request_.limit.bytes);
    if (request_.limit.bytes > 0 && static_cast<double>(candidate.bytes) > free) return false;
    // Larger ones would only add memory once they are no faster.
    const bool slower = !fitting_.empty() && fitting_.back().choice.stage == choice.stage &&
                        candidate.sample_seconds > 0.999 * fitting_.back().sample_seconds;
    fitting_.push_back(candidate);
    return !slower;
  }

 public:
  static void apply(const Choice& choice, config::TrainConfig& config) {
    config.zero.stage = choice.stage;
    if (config.zero.overlap_is_default) config.zero.overlap_comm = choice.stage == 3;
    config.batch.micro_batch_size = choice.micro;
    config.batch.accumulation = choice.accumulation;
    config.batch.train_batch_size = choice.micro * choice.accumulation * config.run.ranks;
  }

 private:
  const config::TrainConfig& config_;
  const formats::HfConfig& model_;
  const OpenRequest& request_;
  std::int64_t seq_len_;
  std::size_t tried_ = 0;
  std::vector<Candidate> fitting_;
  std::optional<Candidate> smallest_;
  std::optional<Error> refused_;
};

}  // namespace

bool settle_open(config::Resolved& resolved, const formats::HfConfig& model, const OpenRequest& request) {
  config::TrainConfig& config = resolved.config;
  const bool micro = config.batch.micro_is_open, stage = config.zero.stage_is_open;
  if (!micro && !stage) return false;
  INTARSIA_CHECK(
      kConfig, !micro || !config.run.reproducible,
      "train_micro_batch_size_per_gpu: \"auto\" with --reproducible: the planner's choice follows the host's "
      "memory, and the bits would follow it; give --batch-size");
  Chooser chooser(resolved, model, request);
  const Candidate best = chooser.choose();
  Chooser::apply(best.choice, config);
  config.batch.micro_is_open = config.zero.stage_is_open = false;

  const auto put = [&](const std::string& path, std::int64_t value) {
    resolved.values[path] = std::to_string(value);
    resolved.origins[path] = "auto (the planner)";
  };
  std::string chosen;
  if (stage) {
    put("zero_optimization.stage", best.choice.stage);
    if (config.zero.overlap_is_default)
      resolved.values["zero_optimization.overlap_comm"] = config.zero.overlap_comm ? "true" : "false";
    std::erase_if(resolved.reports, [](const config::Report& report) { return report.path == "intarsia.stage"; });
    chosen = concat("stage ", best.choice.stage);
  }
  if (micro) {
    put("train_micro_batch_size_per_gpu", best.choice.micro);
    put("gradient_accumulation_steps", best.choice.accumulation);
    put("train_batch_size", config.batch.train_batch_size);
    chosen +=
        concat(stage ? ", " : "", "micro-batch ", best.choice.micro, " x ", best.choice.accumulation, " micro-steps");
  }
  const std::string why =
      chooser.fits() ? concat("of ", chooser.tried(), " that were planned the smallest of the fastest that fit")
                     : concat("the smallest of ", chooser.tried(), " that were planned; none fits");
  resolved.reports.push_back(
      {config::Report::Level::kNote, "auto", "", 0,
       concat("the planner chose ", chosen, ": ", why, " (", format_bytes(best.bytes), " a host)")});
  return true;
}

}  // namespace intarsia::plan
