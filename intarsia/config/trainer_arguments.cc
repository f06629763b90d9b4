// Hugging Face TrainingArguments as a JSON file: the values that resolve "auto".
#include <algorithm>

#include "intarsia/base/text.h"
#include "intarsia/config/asked.h"

namespace intarsia::config {
namespace {

using formats::JsonMember;
using formats::JsonValue;
using Kind = JsonValue::Kind;

struct TrainerName {
  const char* name;
  const char* key;  // of the flag that means the same
};

constexpr TrainerName kNames[] = {
    {"per_device_train_batch_size", "batch_size"},
    {"gradient_accumulation_steps", "accumulation"},
    {"max_grad_norm", "clip"},
    {"learning_rate", "lr"},
    {"weight_decay", "weight_decay"},
    {"adam_epsilon", "eps"},
    {"num_train_epochs", "epochs"},
    {"seed", "seed"},
    {"total_steps", "steps"},
    {"precision", "dtype"},
};

// Read by other rules below.
constexpr const char* kSpecial[] = {"adam_beta1",          "adam_beta2",  "warmup_steps", "warmup_ratio",
                                    "max_steps",           "bf16",        "fp16",         "lr_scheduler_type",
                                    "lr_scheduler_kwargs", "hidden_size", "hidden_sizes", "gradient_checkpointing"};

// Known names that say nothing about what a configuration file holds.
constexpr const char* kSilent[] = {"output_dir",
                                   "overwrite_output_dir",
                                   "do_train",
                                   "do_eval",
                                   "do_predict",
                                   "eval_strategy",
                                   "evaluation_strategy",
                                   "prediction_loss_only",
                                   "per_device_eval_batch_size",
                                   "eval_accumulation_steps",
                                   "eval_delay",
                                   "torch_empty_cache_steps",
                                   "log_level",
                                   "log_level_replica",
                                   "log_on_each_node",
                                   "logging_dir",
                                   "logging_strategy",
                                   "logging_first_step",
                                   "logging_steps",
                                   "logging_nan_inf_filter",
                                   "save_strategy",
                                   "save_steps",
                                   "save_total_limit",
                                   "save_safetensors",
                                   "save_on_each_node",
                                   "save_only_model",
                                   "use_cpu",
                                   "no_cuda",
                                   "data_seed",
                                   "bf16_full_eval",
                                   "fp16_full_eval",
                                   "tf32",
                                   "fp16_opt_level",
                                   "fp16_backend",
                                   "half_precision_backend",
                                   "local_rank",
                                   "ddp_backend",
                                   "tpu_num_cores",
                                   "debug",
                                   "dataloader_drop_last",
                                   "eval_steps",
                                   "dataloader_num_workers",
                                   "dataloader_prefetch_factor",
                                   "past_index",
                                   "run_name",
                                   "disable_tqdm",
                                   "remove_unused_columns",
                                   "label_names",
                                   "load_best_model_at_end",
                                   "metric_for_best_model",
                                   "greater_is_better",
                                   "ignore_data_skip",
                                   "fsdp",
                                   "fsdp_config",
                                   "accelerator_config",
                                   "parallelism_config",
                                   "deepspeed",
                                   "label_smoothing_factor",
                                   "optim",
                                   "optim_args",
                                   "adafactor",
                                   "group_by_length",
                                   "length_column_name",
                                   "report_to",
                                   "project",
                                   "ddp_find_unused_parameters",
                                   "ddp_bucket_cap_mb",
                                   "ddp_broadcast_buffers",
                                   "dataloader_pin_memory",
                                   "dataloader_persistent_workers",
                                   "skip_memory_metrics",
                                   "push_to_hub",
                                   "resume_from_checkpoint",
                                   "hub_model_id",
                                   "hub_strategy",
                                   "hub_token",
                                   "hub_private_repo",
                                   "hub_always_push",
                                   "hub_revision",
                                   "gradient_checkpointing_kwargs",
                                   "include_inputs_for_metrics",
                                   "include_for_metrics",
                                   "eval_do_concat_batches",
                                   "auto_find_batch_size",
                                   "full_determinism",
                                   "torchdynamo",
                                   "ray_scope",
                                   "ddp_timeout",
                                   "torch_compile",
                                   "torch_compile_backend",
                                   "torch_compile_mode",
                                   "include_tokens_per_second",
                                   "include_num_input_tokens_seen",
                                   "neftune_noise_alpha",
                                   "optim_target_modules",
                                   "batch_eval_metrics",
                                   "eval_on_start",
                                   "use_liger_kernel",
                                   "liger_kernel_config",
                                   "eval_use_gather_object",
                                   "average_tokens_across_devices",
                                   "jit_mode_eval",
                                   "use_ipex",
                                   "mp_parameters",
                                   "restore_callback_states_from_checkpoint",
                                   "trackio_space_id",
                                   "world_size",
                                   "n_gpu"};

class Trainer {
 public:
  Trainer(const JsonValue& root, Draft& draft) : root_(root), draft_(draft) {}

  void read() {
    check_names();
    for (const TrainerName& name : kNames) {
      if (const JsonMember* member = given(name.name)) put(name.key, name.name, text(*member));
    }
    betas();
    warmup();
    steps_and_precision();
    schedule();
    hidden_size();
    const JsonMember* recompute = given("gradient_checkpointing");
    if (recompute != nullptr && recompute->value.boolean) put("recompute", "gradient_checkpointing", "full");
  }

 private:
  void check_names() {
    std::vector<std::string> known;
    for (const TrainerName& name : kNames) known.emplace_back(name.name);
    known.insert(known.end(), std::begin(kSpecial), std::end(kSpecial));
    known.insert(known.end(), std::begin(kSilent), std::end(kSilent));
    for (const JsonMember& member : root_.members) {
      if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
      problem(member.key, member, "no TrainingArguments name", nearest(member.key, known).value_or(""));
    }
  }

  const JsonMember* given(const char* name) const {
    const JsonMember* member = root_.find(name);
    return member == nullptr || member->value.kind == Kind::kNull ? nullptr : member;
  }

  static std::string text(const JsonMember& member) {
    return member.value.kind == Kind::kString || member.value.kind == Kind::kNumber ? member.value.text
                                                                                    : member.value.show();
  }

  void problem(const std::string& name, const JsonMember& member, std::string message, std::string suggestion = {}) {
    draft_.problems.push_back({name, draft_.input.trainer_file, member.place.line, member.place.column,
                               member.value.show(), std::move(message), std::move(suggestion)});
    draft_.bad.insert(name);
  }

  void put(const char* key, const std::string& name, std::vector<std::string> values) {
    Asked asked{std::move(values), From::kTrainer, name, "", {}};
    asked.shown = concat(name, " ", join(asked.values, " "), " of ", draft_.input.trainer_file);
    ask(*find_flag_by_key(key), std::move(asked), draft_);
  }
  void put(const char* key, const std::string& name, const std::string& value) {
    put(key, name, std::vector<std::string>{value});
  }

  void betas() {
    const JsonMember* first = given("adam_beta1");
    const JsonMember* second = given("adam_beta2");
    if (first == nullptr && second == nullptr) return;
    put("betas", "adam_beta1 and adam_beta2",
        {first != nullptr ? text(*first) : "0.9", second != nullptr ? text(*second) : "0.999"});
  }

  void warmup() {
    const JsonMember* steps = given("warmup_steps");
    const JsonMember* ratio = given("warmup_ratio");
    // warmup_steps above 0 wins over warmup_ratio, as in Hugging Face.
    const bool use_ratio = ratio != nullptr && ratio->value.as_number().value_or(0) > 0 &&
                           (steps == nullptr || steps->value.as_number().value_or(0) <= 0);
    if (use_ratio) {
      put("warmup", "warmup_ratio", text(*ratio));
    } else if (steps != nullptr) {
      put("warmup", "warmup_steps", text(*steps));
    }
  }

  void steps_and_precision() {
    const JsonMember* max_steps = given("max_steps");
    if (max_steps != nullptr && max_steps->value.as_number().value_or(0) > 0 && given("total_steps") == nullptr)
      put("steps", "max_steps", text(*max_steps));
    const auto on = [&](const char* name) {
      const JsonMember* member = given(name);
      return member != nullptr && member->value.kind == Kind::kBool && member->value.boolean;
    };
    if (on("bf16") && on("fp16")) {
      problem("fp16", *given("fp16"), "bf16 and fp16 are both on", "bf16");
    } else if (on("bf16")) {
      put("dtype", "bf16", "bf16");
    } else if (on("fp16")) {
      put("dtype", "fp16", "fp16");
    }
  }

  void schedule() {
    const JsonMember* type = given("lr_scheduler_type");
    // A scheduler in the DeepSpeed file replaces the trainer's.
    if (draft_.find("scheduler.type") != nullptr) {
      if (type != nullptr) {
        draft_.report(Report::Level::kNote, "scheduler", draft_.sections["scheduler"],
                      concat("replaces the trainer's lr_scheduler_type ", text(*type)));
      }
      return;
    }
    put("schedule", "lr_scheduler_type", type != nullptr ? text(*type) : "linear");
    const JsonMember* more = given("lr_scheduler_kwargs");
    if (more == nullptr) return;
    put("schedule_params", "lr_scheduler_kwargs", more->value.show(std::string::npos - 4));
  }

  void hidden_size() {
    if (draft_.hidden_size) return;
    if (const JsonMember* size = given("hidden_size")) {
      draft_.hidden_size = size->value.as_integer();
      if (!draft_.hidden_size || *draft_.hidden_size < 1)
        problem("hidden_size", *size, "a whole number of at least 1 is expected");
    } else if (const JsonMember* sizes = given("hidden_sizes")) {
      std::int64_t largest = 0;
      for (const JsonValue& item : sizes->value.items) largest = std::max(largest, item.as_integer().value_or(0));
      if (largest < 1) problem("hidden_sizes", *sizes, "a list of whole numbers is expected");
      draft_.hidden_size = largest;
    }
  }

  const JsonValue& root_;
  Draft& draft_;
};

}  // namespace

void read_trainer_arguments(Draft& draft) {
  if (draft.input.trainer_file.empty()) return;
  draft.trainer_given = true;
  try {
    const JsonValue root = formats::read_json_file(draft.input.trainer_file);
    INTARSIA_CHECK(kConfig, root.kind == Kind::kObject, draft.input.trainer_file,
                   ": an object of TrainingArguments in braces is expected");
    Trainer(root, draft).read();
  } catch (const formats::JsonError& error) {
    draft.problems.push_back({error.path(), draft.input.trainer_file, error.place().line, error.place().column,
                              error.value(), error.detail(), ""});
  }
}

}  // namespace intarsia::config
