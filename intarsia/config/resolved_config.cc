#include "intarsia/config/effective.h"
#include "intarsia/config/json_parts.h"

namespace intarsia::config {

using Json = nlohmann::ordered_json;

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
    out["optimizer"] = {{"type", from.type}, {"params", optimizer_params_json(from)}};
    // Decides the type of the counter in a checkpoint for DeepSpeed.
    if (from.torch_adam) out["optimizer"]["params"]["torch_adam"] = true;
  }
  const SchedulerConfig& schedule = config.scheduler;
  Json settings = run_json(config);
  if (!from.groups.empty()) settings["param_groups"] = param_groups_json(from);
  if (from.ema_decay > 0) settings["ema"] = {{"decay", from.ema_decay}};
  if (config.lora.r > 0) settings["lora"] = lora_json(config.lora);
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
    for (const auto& [name, text] : schedule.params) out["scheduler"]["params"][name] = json_of_text(text);
  } else if (!schedule.list.empty()) {
    settings["lr_schedule"] = schedule.list;
  } else if (schedule.source != Source::kCaller) {
    settings["schedule"] = schedule.type;
    settings["warmup"] = schedule.warmup_share > 0 ? Json(schedule.warmup_share) : Json(schedule.warmup_steps);
    Json params = Json::object();
    for (const auto& [name, text] : schedule.params)
      if (name != "num_warmup_steps" && name != "num_training_steps" && !name.starts_with("min_lr"))
        params[name] = json_of_text(text);
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
