#include "intarsia/config/effective.h"

#include <limits>

#include "intarsia/config/json_parts.h"
#include "intarsia/config/readers/deepspeed_schema.h"
#include "intarsia/formats/json.h"

namespace intarsia::config {
namespace {

using Json = nlohmann::ordered_json;

Json value_at(const Resolved& resolved, const std::string& path) {
  const auto found = resolved.values.find(path);
  return found == resolved.values.end() ? Json(nullptr) : json_of_text(found->second);
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

const char* source_word(Source source, const char* nobody) {
  switch (source) {
    case Source::kConfig:
      return "config";
    case Source::kTrainer:
      return "trainer";
    case Source::kFlag:
      return "flag";
    case Source::kCaller:
      break;
  }
  return nobody;
}

Json loss_scale(const LossScaleConfig& scale) {
  switch (scale.mode) {
    case LossScaleConfig::Mode::kNone:
      return {{"mode", "none"}};
    case LossScaleConfig::Mode::kStatic:
      return {{"mode", "static"}, {"value", scale.value}};
    case LossScaleConfig::Mode::kDynamic:
      break;
  }
  return {{"mode", "dynamic"},
          {"initial", scale.initial},
          {"window", scale.window},
          {"hysteresis", scale.hysteresis},
          {"consecutive_hysteresis", scale.consecutive_hysteresis},
          {"min", scale.min}};
}

// The class that DeepSpeed would build, for people who compare.
std::string deepspeed_class(const OptimizerConfig& optimizer, bool on_cpu) {
  const bool adam = optimizer.algorithm == "adamw" || optimizer.algorithm == "adam";
  if (adam && optimizer.torch_adam) return optimizer.algorithm == "adamw" ? "torch.optim.AdamW" : "torch.optim.Adam";
  if (adam) return on_cpu ? "DeepSpeedCPUAdam" : "FusedAdam";
  if (optimizer.algorithm == "lamb") return "FusedLamb";
  if (optimizer.algorithm == "lion") return on_cpu ? "DeepSpeedCPULion" : "FusedLion";
  if (optimizer.algorithm == "adagrad") return on_cpu ? "DeepSpeedCPUAdagrad" : "torch.optim.Adagrad";
  return optimizer.type;
}

Json optimizer(const Resolved& resolved) {
  const OptimizerConfig& from = resolved.config.optimizer;
  Json out = {{"source", source_word(from.source, "caller")}, {"type", or_null(from.type)}};
  if (from.source == Source::kCaller) return out;
  const bool on_cpu = resolved.config.offload_optimizer.device != "none";
  out["algorithm"] = from.algorithm;
  out["runs_on"] = on_cpu ? "cpu" : "device";
  if (from.source == Source::kConfig) out["class"] = deepspeed_class(from, on_cpu);
  out["lr"] = from.lr;
  out["betas"] = {from.beta1, from.beta2};
  out["eps"] = from.eps;
  out["weight_decay"] = from.weight_decay;
  out["bias_correction"] = from.bias_correction;
  out["amsgrad"] = false;
  if (from.algorithm == "lamb") {
    out["max_coeff"] = from.max_coeff;
    out["min_coeff"] = from.min_coeff;
  }
  const Json params = optimizer_params_json(from);
  for (const char* name : {"momentum", "dampening", "nesterov", "lr_decay", "initial_accumulator_value", "beta2_decay",
                           "d", "muon_lr", "adam_lr"})
    if (params.contains(name)) out[name] = params[name];
  return out;
}

Json scheduler(const SchedulerConfig& from) {
  Json out = {{"source", source_word(from.source, "none")}, {"type", or_null(from.type)}};
  if (from.source == Source::kCaller) return out;
  Json params = Json::object();
  for (const auto& [name, text] : from.params) params[name] = json_of_text(text);
  if (!from.list.empty()) params["list"] = from.list;
  out["params"] = std::move(params);
  return out;
}

Json offload(const OffloadConfig& from, bool param) {
  Json out = {{"device", from.device}};
  if (from.device == "none") return out;
  out["nvme_path"] = or_null(from.nvme_path);
  out["pin_memory"] = from.pin_memory;
  out["buffer_count"] = from.buffer_count;
  if (param) {
    out["buffer_size"] = from.buffer_size;
    out["max_in_cpu"] = from.max_in_cpu;
  } else {
    out["pipeline_read"] = from.pipeline_read;
    out["pipeline_write"] = from.pipeline_write;
    out["fast_init"] = from.fast_init;
    out["ratio"] = from.ratio;
  }
  return out;
}

Json zero(const Resolved& resolved) {
  const std::string prefix = "zero_optimization.";
  Json out = {{"stage", resolved.config.zero.stage}};
  for (const KeySpec& spec : deepspeed_keys()) {
    if (!spec.path.starts_with(prefix) || spec.type == KeyType::kAnything || spec.type == KeyType::kStage) continue;
    std::string name = spec.path.substr(prefix.size());
    if (name.find('.') != std::string::npos || name.starts_with("cpu_offload")) continue;
    Json value = value_at(resolved, spec.path);
    if (name.starts_with("stage3_")) name = name.substr(7);
    if (name == "model_persistence_threshold" && value == std::numeric_limits<std::int64_t>::max()) value = "unlimited";
    out[name] = std::move(value);
  }
  return out;
}

Json fsdp_terms(const TrainConfig& config) {
  const char* const words[] = {"NO_SHARD", "OPTIMIZER_ONLY", "SHARD_GRAD_OP", "FULL_SHARD"};
  const int stage = config.zero.stage;
  const bool hybrid = stage == 3 && (config.zero.hpz_partition_size > 1 || config.zero.mics_shard_size > 0);
  return {{"sharding_strategy", hybrid ? "HYBRID_SHARD" : words[stage]}, {"reshard_after_forward", stage == 3}};
}

Json activation_checkpointing(const ActivationCheckpointing& from) {
  return {{"partition_activations", from.partition_activations},
          {"contiguous_memory_optimization", from.contiguous_memory_optimization},
          {"cpu_checkpointing", from.cpu_checkpointing},
          {"number_checkpoints", from.number_checkpoints ? Json(*from.number_checkpoints) : Json(nullptr)},
          {"synchronize_checkpoint_boundary", from.synchronize_checkpoint_boundary},
          {"profile", from.profile},
          {"section_present", from.section_present}};
}

// DeepSpeed prints the type of the gradient reduction as torch does.
Json torch_type(const std::string& word) {
  if (word.empty()) return nullptr;
  return word == "fp32" ? "torch.float32" : word == "fp16" ? "torch.float16" : "torch.bfloat16";
}

}  // namespace

Json effective_json(const Resolved& resolved) {
  const TrainConfig& config = resolved.config;
  const char* const precisions[] = {"fp32", "fp16", "bf16"};
  Json out;
  out["batch"] = {{"train_batch_size", config.batch.train_batch_size},
                  {"micro_batch_size_per_rank", config.batch.micro_batch_size},
                  {"gradient_accumulation_steps", config.batch.accumulation}};
  out["zero_stage"] = config.zero.stage;
  out["fsdp_terms"] = fsdp_terms(config);
  out["precision"] = precisions[static_cast<int>(config.precision)];
  out["loss_scale"] = loss_scale(config.loss_scale);
  out["gradient_clipping"] = config.gradient_clipping;
  out["optimizer"] = optimizer(resolved);
  out["param_groups"] = param_groups_json(config.optimizer);
  out["ema"] = config.optimizer.ema_decay > 0 ? Json{{"decay", config.optimizer.ema_decay}} : Json(nullptr);
  out["lora"] = lora_json(config.lora);
  out["scheduler"] = scheduler(config.scheduler);
  out["offload"] = {{"optimizer", offload(config.offload_optimizer, false)},
                    {"param", offload(config.offload_param, true)}};
  out["zero"] = zero(resolved);
  out["save_16bit_model"] = config.save_16bit_model;
  out["activation_checkpointing"] = activation_checkpointing(config.activation_checkpointing);
  out["communication"] = {{"communication_data_type", torch_type(config.communication.communication_data_type)},
                          {"prescale_gradients", config.communication.prescale_gradients},
                          {"gradient_predivide_factor", config.communication.gradient_predivide_factor},
                          {"grad_accum_dtype", or_null(config.communication.grad_accum_dtype)}};
  out["tensor_parallel_degree"] = config.tensor_parallel_degree;
  out["aio"] = {{"block_size", config.aio.block_size},
                {"queue_depth", config.aio.queue_depth},
                {"intra_op_parallelism", config.aio.intra_op_parallelism},
                {"single_submit", config.aio.single_submit},
                {"overlap_events", config.aio.overlap_events},
                {"use_gds", config.aio.use_gds}};
  out["steps_per_print"] = config.steps_per_print ? Json(*config.steps_per_print) : Json(nullptr);
  // The flops profiler turns the breakdown on, as in DeepSpeed.
  out["wall_clock_breakdown"] =
      value_at(resolved, "wall_clock_breakdown") == true || value_at(resolved, "flops_profiler.enabled") == true;
  out["zero_allow_untested_optimizer"] = value_at(resolved, "zero_allow_untested_optimizer");
  out["zero_force_ds_cpu_optimizer"] = value_at(resolved, "zero_force_ds_cpu_optimizer");
  out["run"] = run_json(config);
  return out;
}

Json problems_json(const std::vector<Problem>& problems) {
  Json out = Json::array();
  for (const Problem& problem : problems) {
    const auto place = [](int number) { return number > 0 ? Json(number) : Json(nullptr); };
    out.push_back({{"path", problem.path},
                   {"line", place(problem.line)},
                   {"column", place(problem.column)},
                   {"value", or_null(problem.value)},
                   {"message", problem.message},
                   {"suggestion", or_null(problem.suggestion)},
                   {"file", or_null(problem.file)}});
  }
  return out;
}

}  // namespace intarsia::config
