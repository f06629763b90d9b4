#include "intarsia/plan/make_run_plan.h"

#include <algorithm>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/adapter_config.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/plan/arch/gpt2.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/lora.h"
#include "intarsia/plan/name_pattern.h"
#include "intarsia/plan/optimizer_of_config.h"
#include "intarsia/plan/optimizer_states.h"

namespace intarsia::plan {
namespace {

DType dtype_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::kFp32:
      return DType::kF32;
    case config::Precision::kBf16:
      return DType::kBF16;
    case config::Precision::kFp16:
      return DType::kF16;
  }
  return DType::kF32;
}

CommBackend backend_of(config::Backend backend) {
  switch (backend) {
    case config::Backend::kThreads:
      return CommBackend::kThreads;
    case config::Backend::kShm:
      return CommBackend::kShm;
    case config::Backend::kGloo:
      return CommBackend::kGloo;
  }
  return CommBackend::kShm;
}

// A reduction in 16 bits divides first, so that sums stay in range. Source: DeepSpeed 0.19, averaging of gradients.
void set_reduction(const config::TrainConfig& config, RunPlan& plan) {
  const config::CommunicationConfig& asked = config.communication;
  if (asked.communication_data_type == "bf16") plan.reduce_dtype = DType::kBF16;
  if (asked.communication_data_type == "fp16") plan.reduce_dtype = DType::kF16;
  if (plan.reduce_dtype == DType::kF32) return;
  plan.reduce_factor = asked.prescale_gradients ? 1 / asked.gradient_predivide_factor : 1.0 / plan.ranks;
}

LossScalePlan loss_scale_of(const config::LossScaleConfig& from) {
  using Mode = config::LossScaleConfig::Mode;
  if (from.mode == Mode::kNone) return {};
  return {.dynamic = from.mode == Mode::kDynamic,
          .initial = from.mode == Mode::kDynamic ? from.initial : from.value,
          .window = from.window,
          .hysteresis = from.hysteresis,
          .consecutive_hysteresis = from.consecutive_hysteresis,
          .min = from.min};
}

bool is_power_of_two(std::int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

// Cuts the global batch into L logical micro-batches, each of which is one pass whatever the micro-batch asked for.
void set_reproducible(const config::TrainConfig& config, RunPlan& plan) {
  const std::int64_t batch = plan.global_batch();
  const std::int64_t logical =
      config.run.logical_micro_batches > 0 ? config.run.logical_micro_batches : plan.accumulation * plan.ranks;
  INTARSIA_CHECK(kConfig, is_power_of_two(logical),
                 "--reproducible needs a power of two of logical micro-batches, not ", logical,
                 config.run.logical_micro_batches > 0
                     ? " (--logical-micro-batches)"
                     : " (train_batch_size / micro-batch); set --logical-micro-batches or another batch");
  INTARSIA_CHECK(kConfig, batch % logical == 0, "--logical-micro-batches is ", logical,
                 ", which does not divide train_batch_size ", batch);
  std::string allowed;
  for (std::int64_t ranks = 1; ranks <= logical; ranks *= 2) allowed += (ranks > 1 ? ", " : "") + std::to_string(ranks);
  INTARSIA_CHECK(kConfig, logical % plan.ranks == 0, "--reproducible with ", logical, " logical micro-batches runs on ",
                 allowed, " ranks, not on ", plan.ranks,
                 "; take one of these or leave --reproducible out (--not-reproducible goes on with a run that was)");
  INTARSIA_CHECK(kConfig, plan.reduce_dtype == DType::kF32, "communication_data_type ", short_name(plan.reduce_dtype),
                 " rounds sums differently in each layout; leave it or --reproducible out");
  plan.reproducible = true;
  plan.micro_batch = batch / logical;
  plan.accumulation = logical / plan.ranks;
}

RecomputePlan recompute_of(const config::TrainConfig& config) {
  RecomputePlan plan{.every = config.run.recompute_every};
  switch (config.run.recompute) {
    case config::Recompute::kNone:
      break;
    case config::Recompute::kFull:
      plan.policy = Recompute::kFull;
      plan.checkpoints = config.activation_checkpointing.number_checkpoints.value_or(0);
      break;
    case config::Recompute::kSelective:
      plan.policy = Recompute::kSelective;
      break;
    case config::Recompute::kEveryK:
      plan.policy = Recompute::kEveryK;
      break;
  }
  return plan;
}

const char* name_of_maximum(const formats::HfConfig& config) {
  if (config.model_type == "gpt2") return "n_positions";
  return config.rope_scaling.type == formats::RopeType::kDynamic ? "max_position_embeddings x rope factor"
                                                                 : "max_position_embeddings";
}

}  // namespace

ModelSource find_model(const std::string& model) {
  INTARSIA_CHECK(kUsage, !model.empty(), "--model is missing; give a Hugging Face directory or one of the presets ",
                 join(preset_names()));
  ModelSource source;
  std::filesystem::path path(model);
  if (path.filename().empty()) path = path.parent_path();
  source.name = path.filename().string();
  INTARSIA_CHECK(kUsage, !formats::is_adapter_directory(path.string()), "--model ", printable(model),
                 " is a LoRA adapter, not a model; eval and generate take --model BASE --adapter ", printable(model),
                 ", intarsia convert ", printable(model), " NEW --model BASE merges the two");
  const bool is_file = std::filesystem::is_regular_file(path);
  if (is_file || (std::filesystem::is_directory(path) && formats::needs_reader(path.string()))) {
    const std::optional<std::string> folder = formats::find_config_folder(path.string());
    INTARSIA_CHECK(kUsage, folder.has_value(), "--model ", printable(model),
                   ": there is no config.json beside it or in the two folders above; put the model's there");
    source.directory = *folder;
    source.weights = path.string();
    source.config = formats::read_hf_config(source.directory);
    return source;
  }
  if (std::filesystem::is_directory(path)) {
    source.directory = path.string();
    source.config = formats::read_hf_config(source.directory);
    return source;
  }
  const auto found = preset(model);
  INTARSIA_CHECK(kUsage, found.has_value(), "--model ", printable(model),
                 ": no such directory and no preset of that name; presets: ", join(preset_names()));
  source.config = *found;
  return source;
}

ModelSpec model_spec(const formats::HfConfig& config) {
  const std::vector<std::string> known = formats::known_model_types();
  INTARSIA_CHECK(kUnsupported, std::ranges::find(known, config.model_type) != known.end(), "model_type \"",
                 printable(config.model_type), "\" is not supported; supported: ", join(known));
  return config.model_type == "gpt2" ? gpt2_spec(config) : llama_spec(config);
}

std::int64_t sequence_length(std::int64_t asked, const formats::HfConfig& config) {
  const std::int64_t longest = config.longest_sequence();
  if (asked == 0) return std::min<std::int64_t>(2048, config.max_position_embeddings);
  INTARSIA_CHECK(kConfig, asked <= longest, "--seq-len ", asked, " is longer than the model's maximum, ",
                 name_of_maximum(config), " = ", longest, "; give --seq-len ", longest, " or less");
  INTARSIA_CHECK(kConfig, asked >= 2, "--seq-len ", asked, ": a sample needs at least 2 tokens, an input and a target");
  return asked;
}

RunPlan make_run_plan(const config::TrainConfig& config, const formats::HfConfig& model, std::int64_t seq_len,
                      std::int64_t steps) {
  INTARSIA_CHECK(kConfig, seq_len <= model.longest_sequence(), "samples of ", seq_len,
                 " tokens are longer than the model's maximum, ", name_of_maximum(model), " = ",
                 model.longest_sequence());
  for (const auto& [key, probability] : model.dropout)
    INTARSIA_CHECK(kUnsupported, false, "the model's \"", key, "\" is ", probability,
                   ": dropout is not supported; set it to 0 in its config.json to train without");
  INTARSIA_CHECK(kConfig, config.lora.r == 0 || config.run.freeze.empty(), "--freeze ", join(config.run.freeze, " "),
                 " with --lora: LoRA freezes all of the model's own parameters; leave --freeze out");
  INTARSIA_CHECK(kConfig, config.lora.r == 0 || !config.run.resize_vocab,
                 "--resize-vocab with --lora: LoRA freezes the embedding, so its new rows would neither be trained nor "
                 "be in the adapter; train the rows first, without --lora, and then an adapter of RUN/model");
  ModelSpec spec = model_spec(model);
  add_lora(config.lora, spec);
  return make_run_plan(config, std::move(spec), seq_len, steps);
}

RunPlan make_run_plan(const config::TrainConfig& config, ModelSpec model, std::int64_t seq_len, std::int64_t steps) {
  RunPlan plan;
  plan.ranks = static_cast<int>(config.run.ranks);
  freeze(config.run.freeze, model);
  plan.model = std::move(model);
  plan.flats = layout_units(plan.model, plan.ranks);
  plan.stage = config.zero.stage;
  INTARSIA_CHECK(kConfig,
                 config.zero.mics_shard_size <= 0 || config.run.shard_size == 0 ||
                     config.zero.mics_shard_size == config.run.shard_size,
                 "zero_optimization.mics_shard_size is ", config.zero.mics_shard_size, ", --shard-size ",
                 config.run.shard_size, ": both are the ranks of a shard group; keep one");
  plan.placement = make_placement(
      {.stage = plan.stage,
       .ranks = plan.ranks,
       .shard_ranks =
           static_cast<int>(config.zero.mics_shard_size > 0 ? config.zero.mics_shard_size : config.run.shard_size),
       .hpz_ranks = static_cast<int>(config.zero.hpz_partition_size > 1 ? config.zero.hpz_partition_size : 0),
       .keep_after_forward = !config.run.reshard_after_forward,
       .no_sync = config.run.no_sync});
  set_reduction(config, plan);
  plan.loss_scale = loss_scale_of(config.loss_scale);
  if (config.bf16_masters) plan.master_dtype = DType::kBF16;
  plan.compute_dtype = dtype_of(config.precision);
  plan.backend = backend_of(config.run.backend);
  plan.device = config.run.device;
  plan.force_copy = config.run.force_copy;
  const bool goes_on = plan.backend == CommBackend::kGloo || plan.device == DeviceKind::kCuda;
  plan.overlap = config.zero.overlap_comm && goes_on && plan.ranks > 1;
  plan.comm_timeout_seconds = config.run.comm_timeout_seconds;
  plan.micro_batch = config.batch.micro_batch_size;
  plan.accumulation = config.batch.accumulation;
  plan.seq_len = seq_len;
  plan.steps = steps;
  plan.gradient_clipping = config.gradient_clipping;
  plan.optimizer = optimizer_of(config, plan.model);
  if (config.bf16_optimizer_states) plan.optimizer.state_dtype = DType::kBF16;
  plan.schedule = schedule_of(config);
  if (plan.schedule.total_steps == 0) plan.schedule.total_steps = steps;
  plan.recompute = recompute_of(config);
  if (config.autocast) plan.autocast = dtype_of(*config.autocast);
  plan.seed = config.run.seed;
  plan.threads = std::max(1, config.run.threads);
  if (config.run.reproducible) set_reproducible(config, plan);
  return plan;
}

RunPlan make_inference_plan(const formats::HfConfig& model, int ranks, DType compute_dtype) {
  RunPlan plan;
  plan.ranks = ranks;
  plan.model = model_spec(model);
  for (ParamSpec& param : plan.model.params) param.frozen = true;
  plan.flats = layout_units(plan.model, ranks);
  plan.stage = 3;
  plan.placement = placement_of_stage(3);
  plan.compute_dtype = compute_dtype;
  return plan;
}

std::int64_t tree_levels(const RunPlan& plan) {
  std::int64_t levels = 0;
  for (std::int64_t block = 1; plan.reproducible && block < plan.accumulation; block *= 2) ++levels;
  return levels;
}

std::int64_t state_bytes(const RunPlan& plan) {
  const auto compute = static_cast<std::int64_t>(dtype_size(plan.compute_dtype));
  std::int64_t bytes = optimizer_state_bytes(plan);
  for (const FlatLayout& flat : plan.flats) {
    const auto numel = [&](Rest rest) { return resting(flat, rest, plan.grid(), 0).size(); };
    bytes += compute * numel(plan.placement.params);
    if (!flat.trainable) continue;
    bytes += 4 * numel(plan.placement.grads) * (1 + tree_levels(plan));
    if (plan.compute_dtype != plan.master_dtype)
      bytes += static_cast<std::int64_t>(dtype_size(plan.master_dtype)) * numel(plan.placement.optimizer);
  }
  return bytes;
}

}  // namespace intarsia::plan
