#include "intarsia/config/readers/deepspeed_schema.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

#include "intarsia/config/readers/deepspeed_rows.h"

namespace intarsia::config {
namespace {

const TypeSpec* find_type(const std::vector<TypeSpec>& types, std::string_view name, bool any_case) {
  const auto same = [&](char a, char b) {
    return a == b ||
           (any_case && std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b)));
  };
  for (const TypeSpec& type : types) {
    if (std::equal(type.name.begin(), type.name.end(), name.begin(), name.end(), same)) return &type;
  }
  return nullptr;
}

}  // namespace

const std::vector<KeySpec>& deepspeed_keys() {
  static const std::vector<KeySpec> kKeys = make_deepspeed_keys();
  return kKeys;
}

const KeySpec* TypeSpec::find(std::string_view wanted) const {
  const auto found = std::ranges::find(params, wanted, &KeySpec::path);
  return found == params.end() ? nullptr : &*found;
}

const KeySpec* find_deepspeed_key(std::string_view path) {
  static const std::unordered_map<std::string, const KeySpec*> kByPath = [] {
    std::unordered_map<std::string, const KeySpec*> by_path;
    for (const KeySpec& key : deepspeed_keys()) by_path.emplace(key.path, &key);
    return by_path;
  }();
  const auto found = kByPath.find(std::string(path));
  return found == kByPath.end() ? nullptr : found->second;
}

bool is_deepspeed_section(std::string_view path) {
  static const std::set<std::string, std::less<>> kSections = [] {
    std::set<std::string, std::less<>> sections = {"optimizer.params", "scheduler.params"};
    for (const KeySpec& key : deepspeed_keys()) {
      for (std::size_t dot = key.path.find('.'); dot != std::string::npos; dot = key.path.find('.', dot + 1)) {
        sections.insert(key.path.substr(0, dot));
      }
    }
    return sections;
  }();
  return kSections.contains(path);
}

const std::vector<TypeSpec>& deepspeed_optimizers() {
  static const std::vector<TypeSpec> kTypes = make_deepspeed_optimizers();
  return kTypes;
}

const std::vector<TypeSpec>& deepspeed_schedulers() {
  static const std::vector<TypeSpec> kTypes = make_deepspeed_schedulers();
  return kTypes;
}

const TypeSpec* find_optimizer(std::string_view name) { return find_type(deepspeed_optimizers(), name, true); }
const TypeSpec* find_scheduler(std::string_view name) { return find_type(deepspeed_schedulers(), name, false); }

const std::vector<KeyAlias>& deepspeed_aliases() {
  static const std::vector<KeyAlias> kAliases = [] {
    std::vector<KeyAlias> aliases = {
        {"bfloat16", "bf16", ""},
        {"zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
         "DeepSpeed does not know this key; it is read as zero_optimization.stage3_gather_16bit_weights_on_model_save"},
        {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
         "zero_optimization.stage3_gather_16bit_weights_on_model_save", ""},
        {"optimizer.params.adamw_mode", "optimizer.params.adam_w_mode", ""},
        {"aio.thread_count", "aio.intra_op_parallelism",
         "DeepSpeed does not read this key; it is read as aio.intra_op_parallelism"},
    };
    // stage3_x and x are the same key.
    const std::string prefix = "zero_optimization.stage3_";
    for (const KeySpec& key : deepspeed_keys()) {
      if (key.path.starts_with(prefix))
        aliases.push_back({"zero_optimization." + key.path.substr(prefix.size()), key.path, ""});
    }
    return aliases;
  }();
  return kAliases;
}

const KeyHint* find_key_hint(std::string_view path) {
  static const std::vector<KeyHint> kHints = {
      {"optimizer.params.max_grad_norm", "gradient_clipping",
       "the limit of the gradient norm is no parameter of the optimizer; write gradient_clipping at the top level"},
      {"scheduler.params.warmup_min_lr", "warmup_min_ratio",
       "this scheduler scales the optimizer's lr and has no rates of its own; use warmup_min_ratio"},
      {"scheduler.params.warmup_max_lr", "optimizer.params.lr",
       "this scheduler scales the optimizer's lr and has no rates of its own; set optimizer.params.lr"},
      {"max_grad_norm", "gradient_clipping", "DeepSpeed's name is gradient_clipping"},
      {"per_device_train_batch_size", "train_micro_batch_size_per_gpu",
       "DeepSpeed's name is train_micro_batch_size_per_gpu"},
      {"learning_rate", "optimizer.params.lr", "DeepSpeed's name is optimizer.params.lr"},
      {"stage", "zero_optimization.stage", "it belongs into the section zero_optimization"},
  };
  for (const KeyHint& hint : kHints) {
    if (hint.path == path) return &hint;
  }
  return nullptr;
}

const std::vector<std::string>& fsdp_config_keys() {
  static const std::vector<std::string> kKeys = {"transformer_layer_cls_to_wrap",
                                                 "min_num_params",
                                                 "backward_prefetch",
                                                 "forward_prefetch",
                                                 "limit_all_gathers",
                                                 "use_orig_params",
                                                 "sync_module_states",
                                                 "cpu_ram_efficient_loading",
                                                 "activation_checkpointing",
                                                 "reshard_after_forward",
                                                 "state_dict_type",
                                                 "fsdp_version",
                                                 "auto_wrap_policy"};
  return kKeys;
}

}  // namespace intarsia::config
