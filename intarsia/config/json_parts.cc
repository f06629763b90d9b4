#include "intarsia/config/json_parts.h"

#include "intarsia/config/flags.h"
#include "intarsia/config/readers/deepspeed_schema.h"
#include "intarsia/formats/json.h"

namespace intarsia::config {
namespace {

using Json = nlohmann::ordered_json;

const std::string& word_of(const char* key, std::size_t index) { return find_flag_by_key(key)->choices.at(index); }

}  // namespace

// Integral floats (5e8) print as the integers they mean.
Json json_of_text(const std::string& text) {
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
      for (const formats::JsonValue& item : value.items) out.push_back(json_of_text(item.show(std::string::npos - 4)));
      return out;
    }
    case Kind::kObject: {
      Json out = Json::object();
      for (const formats::JsonMember& member : value.members)
        out[member.key] = json_of_text(member.value.show(std::string::npos - 4));
      return out;
    }
  }
  return nullptr;
}

// The parameters that the optimizer's type has, by the names of optimizer.params.
Json optimizer_params_json(const OptimizerConfig& from) {
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

Json param_groups_json(const OptimizerConfig& from) {
  Json out = Json::array();
  for (const ParamGroupConfig& group : from.groups) {
    Json& item = out.emplace_back(Json{{"params", group.patterns}});
    if (group.lr) item["lr"] = *group.lr;
    if (group.weight_decay) item["weight_decay"] = *group.weight_decay;
  }
  return out;
}

Json lora_json(const LoraConfig& from) {
  if (from.r == 0) return nullptr;
  Json out = {{"r", from.r}, {"alpha", from.alpha}, {"dropout", from.dropout}};
  if (!from.targets.empty()) out["targets"] = from.targets;
  return out;
}

Json run_json(const TrainConfig& config) {
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

}  // namespace intarsia::config
