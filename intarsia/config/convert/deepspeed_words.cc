#include <algorithm>

#include "intarsia/base/text.h"
#include "intarsia/config/convert/convert.h"
#include "intarsia/config/draft.h"
#include "intarsia/config/readers/deepspeed_reader.h"
#include "intarsia/config/readers/deepspeed_schema.h"
#include "intarsia/formats/json.h"

namespace intarsia::config {
namespace {

constexpr const char* kNoWord = "FSDP has no word for it";

// Why FSDP has no word for a key, by the key or its section.
struct Reason {
  std::string_view prefix;
  std::string_view text;
};
constexpr Reason kReasons[] = {
    {"train_batch_size", "FSDP leaves it to the program: micro-batch x accumulation x ranks"},
    {"train_micro_batch_size_per_gpu", "FSDP leaves it to the program: the DataLoader's batch size"},
    {"gradient_accumulation_steps", "FSDP leaves it to the program: Accelerator(gradient_accumulation_steps=...)"},
    {"gradient_clipping", "FSDP leaves it to the program: accelerator.clip_grad_norm_"},
    {"optimizer", "FSDP leaves it to the program: torch.optim"},
    {"scheduler", "FSDP leaves it to the program: torch.optim.lr_scheduler"},
    {"communication_data_type", "Accelerate reduces in the precision of mixed_precision"},
    {"zero_optimization.zero_hpz_partition_size",
     "Accelerate's fsdp_reshard_after_forward is true or false; torch's fully_shard takes the number itself"},
    {"zero_optimization.offload_",
     "Accelerate's fsdp_offload_params is true or false, for parameters, gradients and "
     "optimizer together, in host memory"},
    {"intarsia", "it is a setting of Intarsia alone"},
};

class DeepSpeedWords {
 public:
  DeepSpeedWords(const Draft& draft, std::int64_t ranks) : draft_(draft) { said_.words.ranks = ranks; }

  SaidWords read() {
    ShardingWords& words = said_.words;
    const Cell* const stage = take("zero_optimization.stage");
    words.stage = stage == nullptr ? 0 : static_cast<int>(stage->value.as_integer().value_or(0));
    read_precision();
    read_offload();
    if (const Cell* const cell = take("zero_optimization.mics_shard_size"))
      if (const auto group = cell->value.as_integer(); group && *group > 0) words.shard_group = *group;
    if (const Cell* const cell = take("zero_optimization.stage3_gather_16bit_weights_on_model_save"))
      words.whole_state_dict = cell->value.boolean;
    words.checkpointing = draft_.sections.contains("activation_checkpointing");
    for (const auto& [path, cell] : draft_.cells) {
      if (taken(path)) continue;
      const KeySpec* const spec = find_deepspeed_key(path);
      // A value that is the default says nothing.
      if (spec != nullptr && spec->fallback == cell.value.show()) continue;
      said_.unsaid.push_back(concat(path, " = ", cell.value.show(60), ": ", reason(path, spec)));
    }
    for (const auto& [key, asked] : draft_.asked)
      said_.unsaid.push_back(
          concat("intarsia.", key, " = ", join(asked.values, " "), ": ", reason("intarsia", nullptr)));
    return std::move(said_);
  }

 private:
  const Cell* take(const std::string& path) {
    taken_.push_back(path);
    return draft_.find(path);
  }
  bool taken(const std::string& path) const { return std::ranges::find(taken_, path) != taken_.end(); }

  static std::string reason(std::string_view path, const KeySpec* spec) {
    for (const Reason& known : kReasons)
      if (path.starts_with(known.prefix)) return std::string(known.text);
    if (spec != nullptr && spec->effect == KeyEffect::kNoEffect) return "it tunes DeepSpeed's own mechanism";
    return kNoWord;
  }

  void read_precision() {
    bool open = false;
    for (const char* word : {"bf16", "fp16"}) {
      const Cell* const enabled = take(concat(word, ".enabled"));
      if (enabled == nullptr) continue;
      if (enabled->is_auto()) {
        open = true;
      } else if (enabled->value.boolean) {
        said_.words.precision = word;
      }
    }
    if (!said_.words.precision && !open) said_.words.precision = "fp32";
  }

  void read_offload() {
    for (const bool params : {true, false}) {
      const std::string path =
          params ? "zero_optimization.offload_param.device" : "zero_optimization.offload_optimizer.device";
      const Cell* const device = take(path);
      if (device == nullptr || device->value.text == "none") continue;
      (params ? said_.words.offload_params : said_.words.offload_optimizer) = true;
      if (device->value.text == "nvme")
        said_.unsaid.push_back(concat(path, " = \"nvme\": FSDP offloads to host memory only"));
    }
  }

  const Draft& draft_;
  SaidWords said_;
  std::vector<std::string> taken_;
};

}  // namespace

SaidWords read_deepspeed_words(const std::string& path, std::int64_t ranks) {
  ResolveInput input;
  input.file = path;
  Draft draft(input);
  try {
    const formats::JsonValue root = formats::read_json_file(path);
    read_deepspeed(root, draft);
  } catch (const formats::JsonError& error) {
    draft.problem(error.path(), error.place(), error.value(), error.detail());
  }
  if (!draft.problems.empty()) throw ConfigError(draft.problems);
  return DeepSpeedWords(draft, ranks).read();
}

ConvertedConfig write_deepspeed(SaidWords said) {
  const ShardingWords& words = said.words;
  std::vector<std::string>& unsaid = said.unsaid;
  std::string zero = concat("    \"stage\": ", words.stage.value_or(0));
  const auto add = [&](const std::string& text) { zero += ",\n    " + text; };
  const int stage = words.stage.value_or(0);
  if (words.offload_params && stage < 3)
    unsaid.push_back(concat("offload of parameters: DeepSpeed has it in stage 3 only, this is stage ", stage));
  if (words.offload_params && stage == 3) add("\"offload_param\": {\"device\": \"cpu\"}");
  if (words.offload_optimizer && stage > 0) add("\"offload_optimizer\": {\"device\": \"cpu\"}");
  if (words.shard_group > 0 && stage == 3) add(concat("\"mics_shard_size\": ", words.shard_group));
  if (words.shard_group > 0 && stage != 3)
    unsaid.push_back(concat("shard groups of ", words.shard_group,
                            " ranks: DeepSpeed has them in stage 3 only "
                            "(mics_shard_size); Intarsia's words are --strategy hybrid_zero2 --shard-size ",
                            words.shard_group));
  if (words.whole_state_dict && stage == 3) add("\"stage3_gather_16bit_weights_on_model_save\": true");
  if (words.ranks > 0)
    unsaid.push_back(concat("num_processes = ", words.ranks, ": the launcher says it: --ranks ", words.ranks,
                            " here, deepspeed --num_gpus there"));
  std::string text =
      "{\n  \"train_micro_batch_size_per_gpu\": \"auto\",\n  \"gradient_accumulation_steps\": \"auto\",\n"
      "  \"gradient_clipping\": \"auto\",\n";
  if (!words.precision) {
    text += "  \"bf16\": {\"enabled\": \"auto\"},\n  \"fp16\": {\"enabled\": \"auto\"},\n";
  } else if (*words.precision != "fp32") {
    text += concat("  ", formats::json_quote(*words.precision), ": {\"enabled\": true},\n");
  }
  if (words.checkpointing) text += "  \"activation_checkpointing\": {},\n";
  text += concat("  \"zero_optimization\": {\n", zero, "\n  }\n}\n");
  return {std::move(text), std::move(unsaid)};
}

}  // namespace intarsia::config
