#include "intarsia/config/effective.h"

#include <limits>

#include "intarsia/config/readers/deepspeed_schema.h"
#include "intarsia/formats/json.h"

namespace intarsia::config {
namespace {

using Json = nlohmann::ordered_json;

// Integral floats (5e8) print as the integers they mean.
Json parsed(const std::string& text) {
  const formats::JsonValue value = formats::parse_json(text, "value");
  using Kind = formats::JsonValue::Kind;
  switch (value.kind) {
    case Kind::kNumber: {
      const std::optional<std::int64_t> integer = value.as_integer();
      if (integer && value.text.find('.') == std::string::npos) return *integer;
      return *value.as_number();
    }
    case Kind::kBool:
      return value.boolean;
    case Kind::kString:
      return value.text;
    case Kind::kNull:
      return nullptr;
    case Kind::kArray: {
      Json out = Json::array();
      for (const formats::JsonValue& item : value.items) out.push_back(parsed(item.show(std::string::npos - 4)));
      return out;
    }
    case Kind::kObject: {
      Json out = Json::object();
      for (const formats::JsonMember& member : value.members)
        out[member.key] = parsed(member.value.show(std::string::npos - 4));
      return out;
    }
  }
  return nullptr;
}

Json value_at(const Resolved& resolved, const std::string& path) {
  const auto found = resolved.values.find(path);
  return found == resolved.values.end() ? Json(nullptr) : parsed(found->second);
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

// The parameters that the optimizer's type has, by the names of optimizer.params.
Json optimizer_params(const OptimizerConfig& from) {
  const TypeSpec* type = find_optimizer(from.type);
  Json out = Json::object();
  const auto put = [&](const char* name, const Json& value) {
    if (type == nullptr || type->has(name)) out[name] = value;
  };
  put("lr", from.lr);
  put("betas", {from.beta1, from.beta2});
  put("eps", from.algorithm == "adafactor" ? Json{from.eps, from.eps2} : Json(from.eps));
  put("weight_decay", from.weight_decay);
  if (type == nullptr) return out;
  if (from.algorithm == "adam") out["adam_w_mode"] = false;
  if (!from.bias_correction) put("bias_correction", false);
  put("momentum", from.momentum);
  put("dampening", from.dampening);
  put("nesterov", from.nesterov);
  put("lr_decay", from.lr_decay);
  put("initial_accumulator_value", from.initial_accumulator_value);
  put("max_coeff", from.max_coeff);
  put("min_coeff", from.min_coeff);
  put("beta2_decay", from.beta2_decay);
  put("d", from.clip_threshold);
  if (from.muon_lr) put("muon_lr", *from.muon_lr);
  if (from.adam_lr) put("adam_lr", *from.adam_lr);
  return out;
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
  const Json params = optimizer_params(from);
  for (const char* name : {"momentum", "dampening", "nesterov", "lr_decay", "initial_accumulator_value", "beta2_decay",
                           "d", "muon_lr", "adam_lr"})
    if (params.contains(name)) out[name] = params[name];
  return out;
}

Json param_groups(const OptimizerConfig& from) {
  Json out = Json::array();
  for (const ParamGroupConfig& group : from.groups) {
    Json& item = out.emplace_back(Json{{"params", group.patterns}});
    if (group.lr) item["lr"] = *group.lr;
    if (group.weight_decay) item["weight_decay"] = *group.weight_decay;
  }
  return out;
}

Json lora(const LoraConfig& from) {
  if (from.r == 0) return nullptr;
  Json out = {{"r", from.r}, {"alpha", from.alpha}, {"dropout", from.dropout}};
  if (!from.targets.empty()) out["targets"] = from.targets;
  return out;
}

Json scheduler(const SchedulerConfig& from) {
  Json out = {{"source", source_word(from.source, "none")}, {"type", or_null(from.type)}};
  if (from.source == Source::kCaller) return out;
  Json params = Json::object();
  for (const auto& [name, text] : from.params) params[name] = parsed(text);
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

const std::string& word_of(const char* key, std::size_t index) { return find_flag_by_key(key)->choices.at(index); }

Json run(const TrainConfig& config) {
  const RunConfig& from = config.run;
  return {{"model", from.model},
          {"data", from.data},
          {"out", from.out},
          {"ranks", from.ranks},
          {"steps", from.steps},
          {"epochs", from.epochs},
          {"seq_len", from.seq_len},
          {"recompute", from.recompute == Recompute::kEveryK
                            ? Json(from.recompute_every)
                            : Json(word_of("recompute", static_cast<std::size_t>(from.recompute)))},
          {"seed", from.seed},
          {"init", from.init_random ? "random" : "files"},
          {"resize_vocab", !from.resize_vocab        ? Json(nullptr)
                           : *from.resize_vocab == 0 ? Json(word_of("resize_vocab", 0))
                                                     : Json(*from.resize_vocab)},
          {"resize_vocab_multiple", from.resize_vocab_multiple},
          {"eval_data", from.eval_data},
          {"eval_fraction", from.eval_fraction},
          {"eval_every", from.eval_every},
          {"save_every", from.save_every},
          {"keep", from.keep},
          {"keep_every", from.keep_every},
          {"async_save", word_of("async_save", static_cast<std::size_t>(from.async_save))},
          {"resume", from.resume},
          {"resume_with_changes", from.resume_with_changes},
          {"fresh", from.fresh},
          {"overwrite", from.overwrite},
          {"log_every", from.log_every},
          {"shuffle", from.shuffle},
          {"pack", word_of("pack", static_cast<std::size_t>(from.pack))},
          {"too_long", word_of("too_long", static_cast<std::size_t>(from.too_long))},
          {"train_on", word_of("train_on", static_cast<std::size_t>(from.train_on))},
          {"bad_lines", word_of("bad_lines", static_cast<std::size_t>(from.bad_lines))},
          {"threads", from.threads},
          {"bind", word_of("bind", static_cast<std::size_t>(from.bind))},
          {"reproducible", from.reproducible},
          {"logical_micro_batches", from.logical_micro_batches},
          {"shard_size", from.shard_size},
          {"reshard_after_forward", from.reshard_after_forward},
          {"no_sync", from.no_sync},
          {"freeze", from.freeze},
          {"early_stopping", from.early_stopping},
          {"save_best", from.save_best},
          {"sample_prompts", from.sample_prompts},
          {"sample_every", from.sample_every},
          {"sample_tokens", from.sample_tokens},
          {"sample_chat", from.sample_chat},
          {"not_reproducible", from.not_reproducible},
          {"dry_run", from.dry_run},
          {"force", from.force},
          {"dump_gradients", from.dump_gradients},
          {"dump_step", from.dump_step},
          {"max_bad_steps", from.max_bad_steps},
          {"no_decay_1d", from.no_decay_1d},
          {"backend", word_of("backend", static_cast<std::size_t>(from.backend))},
          {"device", word_of("device", static_cast<std::size_t>(from.device))},
          {"force_copy", from.force_copy},
          {"comm_timeout_seconds", from.comm_timeout_seconds},
          {"last_window", word_of("last_window", static_cast<std::size_t>(from.last_window))}};
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
  out["param_groups"] = param_groups(config.optimizer);
  out["ema"] = config.optimizer.ema_decay > 0 ? Json{{"decay", config.optimizer.ema_decay}} : Json(nullptr);
  out["lora"] = lora(config.lora);
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
  out["run"] = run(config);
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

Json resolved_config_json(const Resolved& resolved) {
  const TrainConfig& config = resolved.config;
  Json out;
  out["train_batch_size"] = config.batch.train_batch_size;
  out["train_micro_batch_size_per_gpu"] = config.batch.micro_batch_size;
  out["gradient_accumulation_steps"] = config.batch.accumulation;
  out["gradient_clipping"] = config.gradient_clipping;
  out["fp16"] = {{"enabled", config.precision == Precision::kFp16}};
  out["bf16"] = {{"enabled", config.precision == Precision::kBf16}};
  out["zero_optimization"] = {{"stage", config.zero.stage},
                              {"stage3_gather_16bit_weights_on_model_save", config.save_16bit_model}};
  const OptimizerConfig& from = config.optimizer;
  if (from.source != Source::kCaller) {
    out["optimizer"] = {{"type", from.type}, {"params", optimizer_params(from)}};
    // Decides the type of the counter in a checkpoint for DeepSpeed.
    if (from.torch_adam) out["optimizer"]["params"]["torch_adam"] = true;
  }
  const SchedulerConfig& schedule = config.scheduler;
  Json settings = run(config);
  if (!from.groups.empty()) settings["param_groups"] = param_groups(from);
  if (from.ema_decay > 0) settings["ema"] = {{"decay", from.ema_decay}};
  if (config.lora.r > 0) settings["lora"] = lora(config.lora);
  for (const char* key : {"ranks", "out", "fresh", "overwrite", "dry_run", "force", "resume", "resume_with_changes"})
    settings.erase(key);
  for (auto at = settings.begin(); at != settings.end();) {
    const bool unset = (at->is_string() && at->get<std::string>().empty()) || (at->is_array() && at->empty()) ||
                       (at.key() == "steps" && *at == 0) || (at.key() == "seq_len" && *at == 0) ||
                       (at.key() == "dump_step" && config.run.dump_gradients.empty()) ||
                       (at.key().starts_with("resize_vocab") && !config.run.resize_vocab);
    at = unset ? settings.erase(at) : std::next(at);
  }
  if (schedule.source == Source::kConfig) {
    out["scheduler"] = {{"type", schedule.type}, {"params", Json::object()}};
    for (const auto& [name, text] : schedule.params) out["scheduler"]["params"][name] = parsed(text);
  } else if (!schedule.list.empty()) {
    settings["lr_schedule"] = schedule.list;
  } else if (schedule.source != Source::kCaller) {
    settings["schedule"] = schedule.type;
    settings["warmup"] = schedule.warmup_share > 0 ? Json(schedule.warmup_share) : Json(schedule.warmup_steps);
    Json params = Json::object();
    for (const auto& [name, text] : schedule.params)
      if (name != "num_warmup_steps" && name != "num_training_steps" && !name.starts_with("min_lr"))
        params[name] = parsed(text);
    if (schedule.min_lr_ratio > 0) settings["min_lr_ratio"] = schedule.min_lr_ratio;
    if (!params.empty()) settings["schedule_params"] = std::move(params);
  }
  const ActivationCheckpointing& recompute = config.activation_checkpointing;
  if (recompute.section_present) out["activation_checkpointing"] = Json::object();
  if (recompute.number_checkpoints)
    out["activation_checkpointing"]["number_checkpoints"] = *recompute.number_checkpoints;
  if (recompute.profile) out["activation_checkpointing"]["profile"] = true;
  if (config.autocast)
    out["torch_autocast"] = {{"enabled", true},
                             {"dtype", *config.autocast == Precision::kBf16 ? "bfloat16" : "float16"}};
  for (const auto& [name, monitor] :
       {std::pair{"tensorboard", &config.tensorboard}, std::pair{"csv_monitor", &config.csv_monitor}})
    if (monitor->section_present)
      out[name] = {
          {"enabled", monitor->enabled}, {"output_path", monitor->output_path}, {"job_name", monitor->job_name}};
  out["intarsia"] = std::move(settings);
  return out;
}

}  // namespace intarsia::config
