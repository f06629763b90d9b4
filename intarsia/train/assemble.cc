#include "intarsia/train/assemble.h"

#include <algorithm>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/plan/checkpoint_weights.h"
#include "intarsia/plan/directory_weights.h"
#include "intarsia/plan/resized_vocab.h"
#include "intarsia/train/samples.h"

namespace intarsia::train {
namespace {

namespace fs = std::filesystem;

data::DataOptions data_options(const config::RunConfig& run, const std::vector<std::string>& paths, const TrainJob& job,
                               std::int64_t seq_len) {
  data::DataOptions options;
  options.paths = paths;
  options.seq_len = seq_len;
  options.vocab_size = job.model.vocab_size;
  options.pack = run.pack == config::Pack::kOff      ? data::Pack::kOff
                 : run.pack == config::Pack::kConcat ? data::Pack::kConcat
                                                     : data::Pack::kIsolate;
  options.too_long = run.too_long == config::TooLong::kError      ? data::TooLong::kError
                     : run.too_long == config::TooLong::kTruncate ? data::TooLong::kTruncate
                                                                  : data::TooLong::kDrop;
  options.train_on = run.train_on == config::TrainOn::kAll ? formats::TrainOn::kAll : formats::TrainOn::kAssistant;
  options.bad_lines = run.bad_lines == config::BadLines::kSkip ? formats::BadLines::kSkip : formats::BadLines::kError;
  options.tokenizer = job.tokenizer ? &*job.tokenizer : nullptr;
  options.chat = job.chat ? &*job.chat : nullptr;
  if (!job.out.empty()) options.cache_dir = (fs::path(job.out) / "cache").string();
  return options;
}

data::SamplerOptions sampler_options(const config::TrainConfig& config, std::int64_t num_samples) {
  const config::RunConfig& run = config.run;
  return {.num_samples = num_samples,
          .seed = run.seed,
          .shuffle = run.shuffle,
          .micro_batch = config.batch.micro_batch_size,
          .accumulation = config.batch.accumulation,
          .ranks = static_cast<int>(run.ranks),
          .last_window = run.last_window == config::LastWindow::kCarry   ? data::LastWindow::kCarry
                         : run.last_window == config::LastWindow::kFlush ? data::LastWindow::kFlush
                                                                         : data::LastWindow::kDrop,
          .epochs = run.steps > 0 ? 0 : run.epochs};
}

MonitorOptions monitor_options(const config::TrainConfig& config) {
  const config::MonitorConfig &events = config.tensorboard, &csv = config.csv_monitor;
  return {.events = events.enabled || !events.section_present,
          .tensorboard = {events.enabled, events.output_path, events.job_name},
          .csv = {csv.enabled, csv.output_path, csv.job_name},
          .loss_scale = config.loss_scale.mode != config::LossScaleConfig::Mode::kNone};
}

ProfileOptions profile_options(const config::ProfileConfig& from) {
  return {.wall_clock = from.wall_clock_breakdown,
          .flops_step = from.flops ? from.flops_step : 0,
          .flops_units = from.flops_detailed ? 0 : static_cast<std::size_t>(std::max<std::int64_t>(1, from.flops_top)),
          .flops_file = from.flops_file,
          .comms = from.comms,
          .comms_verbose = from.comms && from.comms_verbose,
          .comms_ops = from.comms_ops};
}

LoopOptions loop_options(const config::RunConfig& run) {
  return {.log_every = run.log_every,
          .eval_every = run.eval_every,
          .save_every = run.save_every,
          .keep = run.keep,
          .keep_every = run.keep_every,
          .background_save = run.async_save != config::AsyncSave::kOff,
          .skip_when_saving = run.async_save == config::AsyncSave::kSkip,
          .resume = run.resume,
          .fresh = run.fresh,
          .overwrite = run.overwrite,
          .leave_reproducible = run.not_reproducible,
          .changes_allowed = run.resume_with_changes,
          .dump_gradients = run.dump_gradients,
          .dump_step = run.dump_step,
          .max_bad_steps = run.max_bad_steps,
          .early_stopping = run.early_stopping,
          .save_best = run.save_best};
}

std::optional<formats::Tokenizer> open_tokenizer(const plan::ModelSource& model) {
  if (model.directory.empty() || !fs::exists(fs::path(model.directory) / "tokenizer.json")) return std::nullopt;
  return formats::Tokenizer::load(model.directory);
}

void check_rows(const std::optional<formats::Tokenizer>& tokenizer, const plan::ModelSource& model, std::int64_t rows) {
  if (!tokenizer) return;
  INTARSIA_CHECK(
      kConfig, tokenizer->vocab_size() <= rows, "the tokenizer in ", model.directory, " has ", tokenizer->vocab_size(),
      " tokens, the model's embedding only vocab_size = ", rows,
      " rows; use the tokenizer that belongs to the model, or train the model with --resize-vocab tokenizer");
}

}  // namespace

std::optional<formats::Tokenizer> find_tokenizer(const plan::ModelSource& model) {
  std::optional<formats::Tokenizer> tokenizer = open_tokenizer(model);
  check_rows(tokenizer, model, model.config.vocab_size);
  return tokenizer;
}

TrainJob assemble_job(const config::Resolved& resolved, const plan::ModelSource& model, const std::string& out) {
  config::TrainConfig config = resolved.config;
  TrainJob job;
  job.model = model.config;
  job.tokenizer = open_tokenizer(model);
  job.model.vocab_size = plan::resized_vocab(config.run, model.config.vocab_size,
                                             job.tokenizer ? std::optional(job.tokenizer->vocab_size()) : std::nullopt);
  check_rows(job.tokenizer, model, job.model.vocab_size);
  job.model_directory = model.directory;
  job.weights = model.weights;
  // Instead of weights that a checkpoint would replace at once, and that need not be there.
  const bool from_peer = formats::is_peer_checkpoint(config.run.resume);
  if (from_peer) job.weights = config.run.resume;
  if (!from_peer) job.vocab_in_files = model.config.vocab_size;  // a run that goes on was resized before
  job.random_weights = config.run.init_random || model.directory.empty();
  job.run_name = model.name;
  job.out = out;
  job.loop = loop_options(config.run);
  job.loop.profile_recompute = config.activation_checkpointing.profile;
  job.monitors = monitor_options(config);
  job.profile = profile_options(config.profile);
  const std::int64_t seq_len = plan::sequence_length(config.run.seq_len, model.config);
  if (!model.directory.empty()) job.chat = formats::ChatFormat::find(model.directory);
  job.samples = {encode_prompts(config.run.sample_prompts, config.run.sample_chat, job, seq_len),
                 config.run.sample_every, config.run.sample_tokens};
  const data::DataOptions data = data_options(config.run, config.run.data, job, seq_len);
  if (config.run.eval_fraction > 0) {
    data::TrainAndEval split = data::open_split(data, config.run.eval_fraction, config.run.seed);
    job.dataset = std::move(split.train);
    job.eval_dataset = std::move(split.eval);
  } else {
    job.dataset = data::open_dataset(data);
  }
  INTARSIA_CHECK(kUnsupported, !job.dataset->is_isolated() || seq_len <= model.config.max_position_embeddings,
                 "--pack isolate with dynamic rope and --seq-len ", seq_len,
                 " above max_position_embeddings = ", model.config.max_position_embeddings,
                 ": each document would turn by its own length; give a shorter --seq-len or another --pack");
  if (!config.run.eval_data.empty()) {
    data::DataOptions options = data_options(config.run, config.run.eval_data, job, seq_len);
    options.tail = data::Tail::kPad;
    job.eval_dataset = data::open_dataset(options);
  }
  job.sampler = sampler_options(config, job.dataset->num_samples());
  const std::int64_t steps = config.run.steps > 0 ? config.run.steps : data::planned_updates(job.sampler);
  config::settle_length(config.scheduler, steps);
  job.plan = plan::make_run_plan(config, job.model, job.dataset->seq_len(), steps);
  job.lora = plan::lora_plan(config.lora, job.plan.model);
  if (job.plan.reproducible) {
    job.sampler.micro_batch = job.plan.micro_batch;
    job.sampler.accumulation = job.plan.accumulation;
    job.sampler.logical = job.plan.logical_order();
  }
  for (const config::Report& report : resolved.reports) job.notes.push_back(report.text());
  return job;
}

namespace {

std::unique_ptr<plan::WeightSource> open_own_weights(const plan::ModelSource& model, const plan::RunPlan& plan) {
  if (model.directory.empty()) return std::make_unique<plan::RandomWeights>(plan.seed);
  const plan::ModelSpec own = plan::without_adapters(plan.model);
  const bool resized = model.config.vocab_size != own.vocab_size;
  const plan::ModelSpec in_files = resized ? plan::model_spec(model.config) : own;
  std::unique_ptr<plan::WeightSource> weights;
  if (model.weights.empty()) {
    weights = std::make_unique<plan::DirectoryWeights>(model.directory, in_files);
  } else {
    weights = std::make_unique<plan::CheckpointWeights>(formats::open_checkpoint(model.weights), in_files);
  }
  if (resized) weights = std::make_unique<plan::ResizedWeights>(std::move(weights), in_files);
  return weights;
}

}  // namespace

std::unique_ptr<plan::WeightSource> open_weights(const plan::ModelSource& model, const plan::RunPlan& plan) {
  auto weights = open_own_weights(model, plan);
  if (!plan::has_adapters(plan.model)) return weights;
  return std::make_unique<plan::LoraWeights>(std::move(weights), plan.seed);
}

Assembly assemble(const TrainJob& job, const comm::DataAxes& axes) {
  Assembly assembly;
  formats::HfConfig in_files = job.model;
  if (job.vocab_in_files > 0) in_files.vocab_size = job.vocab_in_files;
  const auto weights = open_weights({.config = in_files,
                                     .directory = job.random_weights ? "" : job.model_directory,
                                     .weights = job.weights,
                                     .name = ""},
                                    job.plan);
  assembly.engine = std::make_unique<shard::Engine>(job.plan, axes, *weights);
  assembly.model = models::make_model(job.model, job.plan, job.lora);
  assembly.optimizer = optim::make_optimizer(job.plan, assembly.engine->states(), axes);
  assembly.loss_scale = std::make_unique<optim::LossScale>(job.plan.loss_scale);
  return assembly;
}

}  // namespace intarsia::train
