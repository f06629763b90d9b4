#include <algorithm>
#include <map>

#include "intarsia/base/text.h"
#include "intarsia/config/convert/convert.h"
#include "intarsia/formats/yaml.h"

namespace intarsia::config {
namespace {

using formats::JsonMember;
using formats::JsonValue;
using Kind = JsonValue::Kind;

// Keys that say how processes are started, or nothing about training.
const std::vector<std::string> kTopKeys = {"compute_environment",
                                           "distributed_type",
                                           "mixed_precision",
                                           "num_processes",
                                           "num_machines",
                                           "machine_rank",
                                           "main_process_ip",
                                           "main_process_port",
                                           "rdzv_backend",
                                           "same_network",
                                           "main_training_function",
                                           "gpu_ids",
                                           "use_cpu",
                                           "debug",
                                           "enable_cpu_affinity",
                                           "downcast_bf16",
                                           "fsdp_config",
                                           "deepspeed_config",
                                           "megatron_lm_config",
                                           "parallelism_config",
                                           "fp8_config",
                                           "dynamo_config",
                                           "mpirun_config",
                                           "tpu_env",
                                           "tpu_use_cluster",
                                           "tpu_use_sudo",
                                           "tpu_name",
                                           "tpu_zone",
                                           "commands",
                                           "command_file",
                                           "ipex_config",
                                           "max_restarts",
                                           "monitor_interval"};
const std::vector<std::string> kFsdpKeys = {"fsdp_version",
                                            "fsdp_sharding_strategy",
                                            "fsdp_reshard_after_forward",
                                            "fsdp_offload_params",
                                            "fsdp_auto_wrap_policy",
                                            "fsdp_transformer_layer_cls_to_wrap",
                                            "fsdp_min_num_params",
                                            "fsdp_backward_prefetch",
                                            "fsdp_backward_prefetch_policy",
                                            "fsdp_forward_prefetch",
                                            "fsdp_state_dict_type",
                                            "fsdp_use_orig_params",
                                            "fsdp_cpu_ram_efficient_loading",
                                            "fsdp_sync_module_states",
                                            "fsdp_activation_checkpointing",
                                            "fsdp_ignored_modules"};
const std::vector<std::string> kDeepSpeedKeys = {"deepspeed_config_file",
                                                 "zero_stage",
                                                 "offload_optimizer_device",
                                                 "offload_param_device",
                                                 "offload_optimizer_nvme_path",
                                                 "offload_param_nvme_path",
                                                 "gradient_accumulation_steps",
                                                 "gradient_clipping",
                                                 "zero3_init_flag",
                                                 "zero3_save_16bit_model",
                                                 "deepspeed_hostfile",
                                                 "deepspeed_exclusion_filter",
                                                 "deepspeed_inclusion_filter",
                                                 "deepspeed_multinode_launcher",
                                                 "deepspeed_moe_layer_cls_names"};
const std::vector<std::string> kParallelKeys = {"parallelism_config_dp_replicate_size",
                                                "parallelism_config_dp_shard_size",
                                                "parallelism_config_tp_size",
                                                "parallelism_config_cp_size",
                                                "parallelism_config_cp_backend",
                                                "parallelism_config_cp_comm_strategy",
                                                "parallelism_config_sp_size",
                                                "parallelism_config_sp_backend",
                                                "parallelism_config_sp_seq_length",
                                                "parallelism_config_sp_seq_length_is_variable",
                                                "parallelism_config_sp_attn_implementation"};

const std::vector<std::string> kStrategies = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                              "HYBRID_SHARD_ZERO2"};  // numbered from 1

class AccelerateWords {
 public:
  explicit AccelerateWords(std::string path) : path_(std::move(path)) {}

  SaidWords read() {
    JsonValue root;
    try {
      root = formats::read_yaml_file(path_);
    } catch (const formats::JsonError& error) {
      problem(error.path(), error.place(), error.value(), error.detail());
      throw ConfigError(problems_);
    }
    check_keys(root, "", kTopKeys);
    read_top(root);
    if (!problems_.empty()) throw ConfigError(problems_);
    return std::move(said_);
  }

 private:
  void problem(std::string path, formats::JsonPlace at, std::string value, std::string message,
               std::string suggestion = {}) {
    problems_.push_back(
        {std::move(path), path_, at.line, at.column, std::move(value), std::move(message), std::move(suggestion)});
  }
  void unsaid(const std::string& key, const JsonValue& value, std::string_view why) {
    said_.unsaid.push_back(concat(key, " = ", word(value), ": ", why));
  }

  static std::string word(const JsonValue& value) {
    return value.kind == Kind::kBool || value.kind == Kind::kString ? value.text : value.show(60);
  }

  void check_keys(const JsonValue& object, const std::string& prefix, const std::vector<std::string>& known) {
    for (const JsonMember& member : object.members)
      if (std::ranges::find(known, member.key) == known.end())
        problem(prefix + member.key, member.place, "", "is no key of Accelerate",
                nearest(member.key, known).value_or(""));
  }

  // The section called `name`, with keys as `known`; null where it is not there or empty.
  const JsonValue* section(const JsonValue& root, const char* name, const std::vector<std::string>& known) {
    const JsonMember* const member = root.find(name);
    if (member == nullptr || member->value.kind == Kind::kNull) return nullptr;
    if (member->value.kind != Kind::kObject) {
      problem(name, member->value.place, word(member->value), "must be a section of keys below it");
      return nullptr;
    }
    check_keys(member->value, concat(name, "."), known);
    return &member->value;
  }

  bool boolean(const JsonValue& object, const std::string& prefix, const char* key, bool otherwise) {
    const JsonMember* const member = object.find(key);
    if (member == nullptr || member->value.kind == Kind::kNull) return otherwise;
    // Accelerate hands booleans on as words, so words in quotes are the same to it.
    std::string text = word(member->value);
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    if (text == "true" || text == "yes" || text == "on") return true;
    if (text == "false" || text == "no" || text == "off") return false;
    problem(prefix + key, member->value.place, word(member->value), "must be true or false");
    return otherwise;
  }

  std::int64_t integer(const JsonValue& object, const std::string& prefix, const char* key, std::int64_t otherwise) {
    const JsonMember* const member = object.find(key);
    if (member == nullptr || member->value.kind == Kind::kNull) return otherwise;
    const auto number = member->value.as_integer();
    if (number && *number >= 0 && *number <= 1'000'000) return *number;
    problem(prefix + key, member->value.place, word(member->value), "must be a whole number from 0 to 1000000");
    return otherwise;
  }

  // One of `choices`, any case; empty where it is not there.
  std::string choice(const JsonValue& object, const std::string& prefix, const char* key,
                     const std::vector<std::string>& choices) {
    const JsonMember* const member = object.find(key);
    if (member == nullptr || member->value.kind == Kind::kNull) return "";
    std::string upper = word(member->value);
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
    if (const auto number = member->value.as_integer();
        number && *number >= 1 && *number <= static_cast<std::int64_t>(choices.size()) && &choices == &kStrategies)
      return choices[static_cast<std::size_t>(*number - 1)];
    if (std::ranges::find(choices, upper) != choices.end()) return upper;
    problem(prefix + key, member->value.place, word(member->value), concat("must be one of ", join(choices)),
            nearest(upper, choices).value_or(""));
    return "";
  }

  void read_top(const JsonValue& root) {
    ShardingWords& words = said_.words;
    words.ranks = integer(root, "", "num_processes", 0);
    words.machines = std::max<std::int64_t>(1, integer(root, "", "num_machines", 1));
    read_precision(root);
    const std::string type = choice(root, "", "distributed_type",
                                    {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"});
    if (type == "MEGATRON_LM" || type == "TP")
      problem("distributed_type", root.find("distributed_type")->value.place, type,
              "is neither FSDP nor DeepSpeed; only those have words on both sides");
    const JsonValue* const fsdp = section(root, "fsdp_config", kFsdpKeys);
    const JsonValue* const deepspeed = section(root, "deepspeed_config", kDeepSpeedKeys);
    words.stage = 0;
    if (type == "FSDP") {
      static const JsonValue kEmpty = formats::parse_yaml("", "");
      read_fsdp(fsdp != nullptr ? *fsdp : kEmpty);
    } else if (type == "DEEPSPEED" && deepspeed != nullptr) {
      read_deepspeed_section(*deepspeed);
    }
    if (const JsonValue* const parallel = section(root, "parallelism_config", kParallelKeys)) read_parallel(*parallel);
    for (const char* name : {"megatron_lm_config", "fp8_config", "dynamo_config", "ipex_config"})
      if (const JsonMember* const member = root.find(name); member != nullptr && !member->value.members.empty())
        said_.unsaid.push_back(concat(name, ": it has no words in a DeepSpeed JSON"));
  }

  void read_precision(const JsonValue& root) {
    const JsonMember* const member = root.find("mixed_precision");
    if (member == nullptr || member->value.kind == Kind::kNull) {
      said_.words.precision = "fp32";
      return;
    }
    if (member->value.kind == Kind::kBool && !member->value.boolean)
      said_.warnings.push_back({Report::Level::kWarning, "mixed_precision", path_, member->value.place.line,
                                concat("YAML reads the bare word ", member->value.text,
                                       " as false; it is taken for 'no', which must stand in quotes")});
    const std::string text = member->value.kind == Kind::kBool && !member->value.boolean
                                 ? "NO"
                                 : choice(root, "", "mixed_precision", {"NO", "FP16", "BF16", "FP8"});
    if (text == "NO") said_.words.precision = "fp32";
    if (text == "FP16") said_.words.precision = "fp16";
    if (text == "BF16") said_.words.precision = "bf16";
    if (text == "FP8")
      problem("mixed_precision", member->value.place, "fp8", "has no word in a DeepSpeed JSON", "bf16");
  }

  void read_fsdp(const JsonValue& fsdp) {
    const std::string at = "fsdp_config.";
    ShardingWords& words = said_.words;
    const std::int64_t version = integer(fsdp, at, "fsdp_version", 1);
    if (version != 1 && version != 2)
      problem(at + "fsdp_version", fsdp.find("fsdp_version")->value.place, std::to_string(version), "must be 1 or 2");
    const std::string strategy = choice(fsdp, at, "fsdp_sharding_strategy", kStrategies);
    if (version == 2) {
      words.stage = boolean(fsdp, at, "fsdp_reshard_after_forward", true) ? 3 : 2;
      if (!strategy.empty())
        said_.unsaid.push_back(concat(at, "fsdp_sharding_strategy = ", strategy,
                                      ": it has no effect with fsdp_version 2; "
                                      "parallelism_config_dp_replicate_size makes groups there"));
    } else {
      const std::string in_force = strategy.empty() ? "FULL_SHARD" : strategy;
      words.stage = in_force == "NO_SHARD"                                            ? 0
                    : in_force == "SHARD_GRAD_OP" || in_force == "HYBRID_SHARD_ZERO2" ? 2
                                                                                      : 3;
      if (in_force.starts_with("HYBRID")) {
        if (words.ranks > 0 && words.ranks % words.machines == 0) {
          words.shard_group = words.ranks / words.machines;
        } else {
          said_.unsaid.push_back(concat(at, "fsdp_sharding_strategy = ", in_force,
                                        ": the ranks of a machine are not known; give num_processes"));
        }
      }
    }
    words.offload_params = words.offload_optimizer = boolean(fsdp, at, "fsdp_offload_params", false);
    words.checkpointing = boolean(fsdp, at, "fsdp_activation_checkpointing", false);
    const std::string kind =
        choice(fsdp, at, "fsdp_state_dict_type", {"FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"});
    words.whole_state_dict = kind == "FULL_STATE_DICT" || (kind.empty() && version == 1);
    if (kind == "LOCAL_STATE_DICT")
      said_.unsaid.push_back(at + "fsdp_state_dict_type = LOCAL_STATE_DICT: DeepSpeed's shards are its own");
    if (words.whole_state_dict && words.stage != 3)
      said_.unsaid.push_back(at +
                             "fsdp_state_dict_type = FULL_STATE_DICT: below stage 3 DeepSpeed's model file has "
                             "whole weights anyhow");
    static const std::map<std::string, const char*> kWhy = {
        {"fsdp_auto_wrap_policy", "DeepSpeed gathers module by module, here block by block"},
        {"fsdp_transformer_layer_cls_to_wrap", "DeepSpeed gathers module by module, here block by block"},
        {"fsdp_min_num_params", "DeepSpeed gathers module by module, here block by block"},
        {"fsdp_backward_prefetch", "DeepSpeed's stage3_prefetch_bucket_size counts elements"},
        {"fsdp_backward_prefetch_policy", "DeepSpeed's stage3_prefetch_bucket_size counts elements"},
        {"fsdp_forward_prefetch", "DeepSpeed's stage3_prefetch_bucket_size counts elements"},
        {"fsdp_use_orig_params", "DeepSpeed always keeps the module's own parameters"},
        {"fsdp_cpu_ram_efficient_loading", "it is a matter of loading the model (zero.Init there)"},
        {"fsdp_sync_module_states", "DeepSpeed always spreads rank 0's weights"},
        {"fsdp_ignored_modules", "DeepSpeed shards every module"}};
    for (const JsonMember& member : fsdp.members)
      if (const auto why = kWhy.find(member.key); why != kWhy.end() && member.value.kind != Kind::kNull)
        unsaid(at + member.key, member.value, why->second);
  }

  void read_deepspeed_section(const JsonValue& deepspeed) {
    const std::string at = "deepspeed_config.";
    ShardingWords& words = said_.words;
    if (const JsonMember* const file = deepspeed.find("deepspeed_config_file"))
      problem(at + "deepspeed_config_file", file->value.place, word(file->value),
              "is the DeepSpeed JSON already; convert that file");
    words.stage = static_cast<int>(integer(deepspeed, at, "zero_stage", 2));
    if (*words.stage > 3)
      problem(at + "zero_stage", deepspeed.find("zero_stage")->value.place, std::to_string(*words.stage),
              "must be 0, 1, 2 or 3");
    for (const bool params : {true, false}) {
      const char* const key = params ? "offload_param_device" : "offload_optimizer_device";
      const std::string device = choice(deepspeed, at, key, {"NONE", "CPU", "NVME"});
      (params ? words.offload_params : words.offload_optimizer) = device == "CPU" || device == "NVME";
      if (device == "NVME") said_.unsaid.push_back(concat(at, key, " = nvme: it is written as cpu"));
    }
    words.whole_state_dict = boolean(deepspeed, at, "zero3_save_16bit_model", false);
    for (const char* key : {"gradient_accumulation_steps", "gradient_clipping"})
      if (const JsonMember* const member = deepspeed.find(key); member != nullptr && word(member->value) != "auto")
        unsaid(at + key, member->value, "it is written as \"auto\": give it as a flag");
  }

  void read_parallel(const JsonValue& parallel) {
    const std::string at = "parallelism_config.";
    const std::int64_t replicas = integer(parallel, at, "parallelism_config_dp_replicate_size", 1);
    const std::int64_t shards = integer(parallel, at, "parallelism_config_dp_shard_size", 1);
    if (replicas > 1 && shards > 1) said_.words.shard_group = shards;
    if (replicas > 1 && shards <= 1) said_.words.stage = 0;
    for (const char* key : {"parallelism_config_tp_size", "parallelism_config_cp_size", "parallelism_config_sp_size"})
      if (integer(parallel, at, key, 1) > 1)
        unsaid(at + key, parallel.find(key)->value,
               "only data-parallel groups have words on both sides; the ranks of this one are not data-parallel");
  }

  std::string path_;
  SaidWords said_;
  std::vector<Problem> problems_;
};

}  // namespace

SaidWords read_accelerate_words(const std::string& path) { return AccelerateWords(path).read(); }

ConvertedConfig write_accelerate(SaidWords said) {
  const ShardingWords& words = said.words;
  std::vector<std::string>& unsaid = said.unsaid;
  const int stage = words.stage.value_or(0);
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  const bool fsdp = stage > 0;
  std::string text =
      concat("compute_environment: LOCAL_MACHINE\ndistributed_type: ", fsdp ? "FSDP" : "MULTI_GPU", "\n");
  if (stage == 1)
    unsaid.push_back(
        "zero_optimization.stage = 1: FSDP has no word for optimizer state alone; written as "
        "fsdp_reshard_after_forward: false, which shards gradients too (stage 2): the same numbers, less "
        "memory");
  if (words.offload_optimizer && !words.offload_params)
    unsaid.push_back("offload of the optimizer alone: fsdp_offload_params is for all or nothing; written as false");
  if (words.offload_params && !words.offload_optimizer)
    unsaid.push_back("offload of the parameters alone: fsdp_offload_params takes gradients and optimizer with them");
  if (fsdp) {
    text += concat("fsdp_config:\n  fsdp_activation_checkpointing: ", flag(words.checkpointing),
                   "\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_cpu_ram_efficient_loading: true\n"
                   "  fsdp_offload_params: ",
                   flag(words.offload_params), "\n  fsdp_reshard_after_forward: ", flag(stage == 3),
                   "\n  fsdp_state_dict_type: ", words.whole_state_dict ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT",
                   "\n  fsdp_version: 2\n");
  } else if (words.checkpointing) {
    unsaid.push_back(
        "activation_checkpointing: without FSDP Accelerate has no word for it; the model's "
        "gradient_checkpointing_enable() does it");
  }
  text += "machine_rank: 0\nmain_training_function: main\n";
  if (words.precision) {
    text +=
        concat("mixed_precision: ", formats::yaml_quote(*words.precision == "fp32" ? "no" : *words.precision), "\n");
  } else {
    unsaid.push_back("bf16.enabled, fp16.enabled = \"auto\": the trainer settles it; mixed_precision is left out");
  }
  text += concat("num_machines: ", words.machines, "\nnum_processes: ", std::max<std::int64_t>(words.ranks, 1), "\n");
  if (words.ranks == 0) unsaid.push_back("the number of ranks: a DeepSpeed JSON does not tell it; give --ranks N");
  if (words.shard_group > 0 && words.ranks > 0 && words.ranks % words.shard_group == 0) {
    text += concat("parallelism_config:\n  parallelism_config_dp_replicate_size: ", words.ranks / words.shard_group,
                   "\n  parallelism_config_dp_shard_size: ", words.shard_group, "\n");
  } else if (words.shard_group > 0) {
    unsaid.push_back(concat("shard groups of ", words.shard_group,
                            " ranks: the number of ranks must be known and a "
                            "multiple of it; give --ranks N"));
  }
  text += "rdzv_backend: static\nsame_network: true\nuse_cpu: false\n";
  return {std::move(text), std::move(unsaid)};
}

}  // namespace intarsia::config
