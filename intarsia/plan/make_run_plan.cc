#include "intarsia/plan/make_run_plan.h"

#include <algorithm>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/plan/arch/llama.h"

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

OptimizerPlan optimizer_of(const config::TrainConfig& config) {
  const config::OptimizerConfig& from = config.optimizer;
  INTARSIA_CHECK(kUnsupported, from.algorithm == "adamw" || from.algorithm == "adam", "optimizer ", from.type,
                 " is not supported yet; supported: AdamW, Adam");
  return {.decoupled_decay = from.algorithm == "adamw",
          .bias_correction = from.bias_correction,
          .lr = from.lr,
          .beta1 = from.beta1,
          .beta2 = from.beta2,
          .eps = from.eps,
          .weight_decay = from.weight_decay,
          .no_decay_1d = config.run.no_decay_1d};
}

}  // namespace

ModelSource find_model(const std::string& model) {
  INTARSIA_CHECK(kUsage, !model.empty(), "--model is missing; give a Hugging Face directory or one of the presets ",
                 join(preset_names()));
  ModelSource source;
  std::filesystem::path path(model);
  if (path.filename().empty()) path = path.parent_path();
  source.name = path.filename().string();
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
  INTARSIA_CHECK(kUnsupported, config.model_type == "llama", "model_type \"", printable(config.model_type),
                 "\" is not supported yet; supported: llama");
  return llama_spec(config);
}

std::int64_t sequence_length(std::int64_t asked, const formats::HfConfig& config) {
  if (asked == 0) return std::min<std::int64_t>(2048, config.max_position_embeddings);
  INTARSIA_CHECK(kConfig, asked <= config.max_position_embeddings, "--seq-len ", asked,
                 " is longer than the model's maximum, max_position_embeddings = ", config.max_position_embeddings,
                 "; give --seq-len ", config.max_position_embeddings, " or less");
  INTARSIA_CHECK(kConfig, asked >= 2, "--seq-len ", asked, ": a sample needs at least 2 tokens, an input and a target");
  return asked;
}

RunPlan make_run_plan(const config::TrainConfig& config, const formats::HfConfig& model, std::int64_t seq_len,
                      std::int64_t steps) {
  INTARSIA_CHECK(
      kConfig, seq_len <= model.max_position_embeddings, "samples of ", seq_len,
      " tokens are longer than the model's maximum, max_position_embeddings = ", model.max_position_embeddings);
  return make_run_plan(config, model_spec(model), seq_len, steps);
}

RunPlan make_run_plan(const config::TrainConfig& config, ModelSpec model, std::int64_t seq_len, std::int64_t steps) {
  RunPlan plan;
  plan.ranks = static_cast<int>(config.run.ranks);
  plan.model = std::move(model);
  plan.flats = layout_units(plan.model, plan.ranks);
  plan.stage = config.zero.stage;
  plan.placement = placement_of_stage(plan.stage);
  plan.compute_dtype = dtype_of(config.precision);
  plan.backend = backend_of(config.run.backend);
  plan.force_copy = config.run.force_copy;
  plan.comm_timeout_seconds = config.run.comm_timeout_seconds;
  plan.micro_batch = config.batch.micro_batch_size;
  plan.accumulation = config.batch.accumulation;
  plan.seq_len = seq_len;
  plan.steps = steps;
  plan.gradient_clipping = config.gradient_clipping;
  plan.optimizer = optimizer_of(config);
  plan.schedule = schedule_of(config);
  if (plan.schedule.total_steps == 0) plan.schedule.total_steps = steps;
  plan.recompute = config.run.recompute == config::Recompute::kFull ? Recompute::kFull : Recompute::kNone;
  plan.seed = config.run.seed;
  plan.threads = std::max(1, config.run.threads);
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

std::int64_t state_bytes(const RunPlan& plan) {
  const auto compute = static_cast<std::int64_t>(dtype_size(plan.compute_dtype));
  std::int64_t bytes = 0;
  for (const FlatLayout& flat : plan.flats) {
    const auto numel = [&](Rest rest) { return rest == Rest::kSharded ? flat.shard_numel : flat.flat_numel(); };
    bytes += compute * numel(plan.placement.params);
    if (!flat.trainable) continue;
    bytes += 4 * numel(plan.placement.grads) + 8 * numel(plan.placement.optimizer);
    if (plan.compute_dtype != DType::kF32) bytes += 4 * numel(plan.placement.optimizer);
  }
  return bytes;
}

}  // namespace intarsia::plan
