// The zero_optimization section, offload, and the small sections.
#include <algorithm>

#include "intarsia/base/text.h"
#include "intarsia/config/readers/deepspeed_rules.h"
#include "intarsia/config/readers/deepspeed_schema.h"

namespace intarsia::config {
namespace {

const std::string kZero = "zero_optimization.";
// No model is near it; beyond, h * h * 9 would leave 64 bits.
constexpr std::int64_t kLargestHiddenSize = 100'000'000;

void resolve_stage(Draft& draft) {
  const std::string path = kZero + "stage";
  const Asked* strategy = draft.find_asked("strategy");
  if (strategy != nullptr) {
    const std::string& word = strategy->values[0];
    if (word.starts_with("hybrid") && draft.find_asked("shard_size") == nullptr) {
      draft.problem(strategy->path, strategy->place, word, "needs the number of ranks of a shard group",
                    "--shard-size N");
    } else {
      Asked stage = *strategy;
      const bool parameters = word == "full_shard" || word == "hybrid";
      stage.values = {parameters ? "3" : word == "no_shard" ? "0" : "2"};
      const Asked* before = draft.find_asked("stage");
      if (before != nullptr && before->values[0] == "auto") before = nullptr;
      if (before != nullptr && before->values != stage.values) {
        draft.problem(strategy->path, strategy->place, word,
                      concat("is stage ", stage.values[0], " and contradicts ", before->shown), "keep one");
      } else {
        draft.asked["stage"] = stage;
      }
    }
  }
  const Asked* asked = draft.find_asked("stage");
  const formats::JsonPlace place = asked != nullptr ? asked->place : formats::JsonPlace{};
  if (take_auto("stage", path, draft)) {
    if (!draft.input.planner_follows && draft.input.for_training) {
      draft.problem("intarsia.stage", place, "auto", "the planner knows the models of intarsia train only",
                    "0, 1, 2 or 3");
      return;
    }
    draft.result.config.zero.stage_is_open = true;
    draft.put(path, "3", From::kAuto);
    draft.report(Report::Level::kNote, "intarsia.stage", place,
                 "auto: the planner chooses when model and host are known");
  }
  settle(path, "stage", "0", true, draft);
  draft.result.config.zero.stage = static_cast<int>(draft.integer(path));
}

// reduce_bucket_size, prefetch and persistence that are "auto" follow the model's hidden size, as in Hugging Face.
void resolve_sizes(Draft& draft) {
  const std::int64_t h = std::clamp<std::int64_t>(draft.hidden_size.value_or(0), 0, kLargestHiddenSize + 1);
  const struct {
    const char* key;
    std::int64_t value;
  } rules[] = {{"reduce_bucket_size", h * h},
               {"stage3_prefetch_bucket_size", h * h * 9 / 10},
               {"stage3_param_persistence_threshold", 10 * h}};
  for (const auto& rule : rules) {
    const std::string path = kZero + rule.key;
    const Cell* cell = draft.find(path);
    if (cell == nullptr || !cell->is_auto()) continue;
    if (h > 0 && h <= kLargestHiddenSize) {
      draft.put(path, std::to_string(rule.value), From::kAuto);
    } else {
      draft.problem(path, *cell, "\"auto\" follows the model's hidden_size, which is not known",
                    "hidden_size in --trainer, --model, or a number");
    }
  }
}

void resolve_offload(const char* name, const char* old_key, OffloadConfig& offload, Draft& draft) {
  const std::string section = kZero + name;
  const std::string old = kZero + old_key;
  if (draft.has(old) && draft.boolean(old)) {
    const Cell& cell = *draft.find(old);
    const auto given = draft.sections.find(section);
    if (given != draft.sections.end()) {
      draft.problem(old, cell.key_place, cell.value.show(),
                    concat("the old spelling of ", section, ", which line ", given->second.line, " gives too"),
                    concat("keep ", name, " alone"));
      return;
    }
    draft.report(Report::Level::kWarning, old, cell.key_place,
                 concat("the old spelling; it means ", name, ": {\"device\": \"cpu\"}"));
    draft.put(section + ".device", "\"cpu\"", From::kFile);
    draft.cells[section + ".device"].value.place = cell.value.place;
    if (draft.has(kZero + "cpu_offload_use_pin_memory") && draft.boolean(kZero + "cpu_offload_use_pin_memory"))
      draft.put(section + ".pin_memory", "true", From::kFile);
  }
  offload.device = draft.text(section + ".device");
  if (offload.device == "none" || draft.is_bad(section + ".device")) return;
  offload.nvme_path = draft.text(section + ".nvme_path");
  offload.pin_memory = draft.boolean(section + ".pin_memory");
  offload.buffer_count = draft.integer(section + ".buffer_count");
  offload.pipeline_read = draft.boolean(section + ".pipeline_read");
  offload.pipeline_write = draft.boolean(section + ".pipeline_write");
  offload.fast_init = draft.boolean(section + ".fast_init");
  if (section.ends_with("param")) {
    offload.buffer_size = draft.integer(section + ".buffer_size");
    offload.max_in_cpu = draft.integer(section + ".max_in_cpu");
  } else {
    offload.ratio = draft.number(section + ".ratio");
  }
  const std::string path = section + ".nvme_path";
  const Cell& device = *draft.find(section + ".device");
  if (offload.device == "nvme") {
    if (!draft.has(path)) {
      draft.problem(path, device.value.place, "\"nvme\"", "device nvme needs a directory", "nvme_path");
    } else if (!offload.nvme_path.starts_with('/') || (offload.nvme_path + "/").find("/../") != std::string::npos) {
      draft.problem(path, *draft.find(path), "the directory must be an absolute path without ..",
                    "an absolute path without ..");
    }
  }
  const int stage = draft.result.config.zero.stage;
  if (section.ends_with("param") && stage != 3 && !draft.is_bad(kZero + "stage")) {
    const auto at = draft.sections.find(section);
    draft.problem(section, at != draft.sections.end() ? at->second : device.value.place, device.value.show(),
                  concat("parameters are sharded in stage 3 only, and the stage is ", stage),
                  "stage 3, or offload_optimizer");
    return;
  }
  draft.refuse(section + ".device", "offloading is not built yet", "\"none\"");
}

}  // namespace

void resolve_zero(Draft& draft) {
  resolve_stage(draft);
  resolve_sizes(draft);
  drop_other_autos(draft);
  TrainConfig& config = draft.result.config;
  resolve_offload("offload_optimizer", "cpu_offload", config.offload_optimizer, draft);
  resolve_offload("offload_param", "cpu_offload_param", config.offload_param, draft);
  ZeroConfig& zero = config.zero;
  zero.overlap_is_default = !draft.has(kZero + "overlap_comm");
  zero.overlap_comm = draft.has(kZero + "overlap_comm") ? draft.boolean(kZero + "overlap_comm") : zero.stage == 3;
  if (!draft.has(kZero + "overlap_comm"))
    draft.put(kZero + "overlap_comm", zero.overlap_comm ? "true" : "false", From::kDefault);
  zero.contiguous_gradients = draft.boolean(kZero + "contiguous_gradients");
  zero.reduce_scatter = draft.boolean(kZero + "reduce_scatter");
  zero.allgather_partitions = draft.boolean(kZero + "allgather_partitions");
  zero.round_robin_gradients = draft.boolean(kZero + "round_robin_gradients");
  zero.load_from_fp32_weights = draft.boolean(kZero + "load_from_fp32_weights");
  zero.reduce_bucket_size = draft.integer(kZero + "reduce_bucket_size");
  zero.allgather_bucket_size = draft.integer(kZero + "allgather_bucket_size");
  zero.sub_group_size = draft.integer(kZero + "sub_group_size");
  zero.prefetch_bucket_size = draft.integer(kZero + "stage3_prefetch_bucket_size");
  zero.param_persistence_threshold = draft.integer(kZero + "stage3_param_persistence_threshold");
  zero.max_live_parameters = draft.integer(kZero + "stage3_max_live_parameters");
  zero.max_reuse_distance = draft.integer(kZero + "stage3_max_reuse_distance");
  zero.hpz_partition_size = draft.integer(kZero + "zero_hpz_partition_size");
  zero.mics_shard_size = draft.integer(kZero + "mics_shard_size");
  zero.quantized_weights = draft.boolean(kZero + "zero_quantized_weights");
  zero.quantized_gradients = draft.boolean(kZero + "zero_quantized_gradients");
  zero.quantized_nontrainable_weights = draft.boolean(kZero + "zero_quantized_nontrainable_weights");
  config.save_16bit_model = draft.boolean(kZero + "stage3_gather_16bit_weights_on_model_save");
}

void drop_other_autos(Draft& draft) {
  for (auto at = draft.cells.begin(); at != draft.cells.end();) {
    const std::string& path = at->first;
    // The rules of optimizer and scheduler come later and have their own words.
    const bool later = path.starts_with("optimizer.") || path.starts_with("scheduler.") ||
                       path == "gradient_clipping" || draft.is_bad(path);
    if (!at->second.is_auto() || later) {
      ++at;
      continue;
    }
    draft.report(Report::Level::kNote, path, at->second.key_place,
                 "\"auto\" has no rule here; the default is in force");
    at = draft.cells.erase(at);
  }
}

namespace {

void resolve_monitor(const std::string& section, MonitorConfig& to, Draft& draft) {
  to.section_present = draft.sections.contains(section);
  to.enabled = draft.boolean(section + ".enabled");
  to.output_path = draft.text(section + ".output_path");
  to.job_name = draft.text(section + ".job_name");
  const Cell* job = draft.find(section + ".job_name");
  if (job != nullptr && (to.job_name.empty() || to.job_name == "." || to.job_name == ".." ||
                         to.job_name.find('/') != std::string::npos || to.job_name.find('\0') != std::string::npos))
    draft.problem(section + ".job_name", *job, "the name of one folder is expected, without /",
                  "put the folders into output_path");
}

// DeepSpeed's names of collectives that are counted here by ours.
constexpr const char* kCountedOps[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                       "all_to_all", "send",           "recv",       "barrier"};

// "all_gather_into_tensor" is our "all_gather"; empty: none of ours.
std::string counted_op(const std::string& name) {
  for (const char* op : kCountedOps)
    if (name.starts_with(op) || name == "i" + std::string(op)) return op;
  return {};
}

void resolve_profile(Draft& draft) {
  ProfileConfig& profile = draft.result.config.profile;
  profile.flops = draft.boolean("flops_profiler.enabled");
  profile.wall_clock_breakdown = draft.boolean("wall_clock_breakdown") || profile.flops;  // as in DeepSpeed
  profile.flops_step = std::max<std::int64_t>(1, draft.integer("flops_profiler.profile_step"));
  profile.flops_top = draft.integer("flops_profiler.top_modules");
  profile.flops_detailed = draft.boolean("flops_profiler.detailed");
  profile.flops_file = draft.text("flops_profiler.output_file");
  profile.comms = draft.boolean("comms_logger.enabled");
  profile.comms_verbose = draft.boolean("comms_logger.verbose");
  const Cell* ops = draft.find("comms_logger.prof_ops");
  if (ops != nullptr && ops->value.kind == formats::JsonValue::Kind::kArray && !draft.boolean("comms_logger.prof_all"))
    for (const formats::JsonValue& item : ops->value.items) {
      const std::string op = counted_op(item.text);
      if (!op.empty()) {
        profile.comms_ops.push_back(op);
      } else {
        draft.problem("comms_logger.prof_ops", *ops, concat(item.show(), " is no operation that is counted"),
                      join(std::vector<std::string>(std::begin(kCountedOps), std::end(kCountedOps))));
      }
    }
  const bool asked = profile.wall_clock_breakdown || profile.comms;
  if (asked && draft.input.for_training && !draft.input.planner_follows)
    draft.report(Report::Level::kNote, profile.comms ? "comms_logger" : "wall_clock_breakdown", {},
                 "intarsia train writes these times; in a program of one's own nothing does");
}

}  // namespace

void resolve_sections(Draft& draft) {
  TrainConfig& config = draft.result.config;
  settle("gradient_clipping", "clip", "1.0", false, draft);
  config.gradient_clipping = draft.number("gradient_clipping");
  if (!draft.has("gradient_clipping") && !draft.is_bad("gradient_clipping") && !draft.input.file.empty()) {
    draft.report(Report::Level::kWarning, "gradient_clipping", {},
                 "absent, so gradients are clipped at 1.0, as in DeepSpeed since mid 2026; earlier releases did not "
                 "clip at all");
  }
  const auto type_word = [&](const char* path, std::string& to) {
    if (!draft.has(path)) return;
    to = draft.text(path) == "bfp16" ? "bf16" : draft.text(path);
    if (to != "fp32" && to != "" && std::string_view(path) != "communication_data_type")
      draft.refuse(path, "gradients are always accumulated in fp32", "\"fp32\", or leave the key out");
  };
  type_word("communication_data_type", config.communication.communication_data_type);
  type_word("data_types.grad_accum_dtype", config.communication.grad_accum_dtype);
  config.communication.prescale_gradients = draft.boolean("prescale_gradients");
  config.communication.gradient_predivide_factor = draft.number("gradient_predivide_factor");
  const std::string& reduced = config.communication.communication_data_type;
  for (const char* path : {"prescale_gradients", "gradient_predivide_factor"}) {
    if (draft.has(path) && (reduced.empty() || reduced == "fp32"))
      draft.report(Report::Level::kNote, path, draft.find(path)->key_place,
                   "no effect here: gradients are reduced in fp32, which needs no division before; it acts on a 16-bit "
                   "communication_data_type");
  }
  ActivationCheckpointing& recompute = config.activation_checkpointing;
  const std::string section = "activation_checkpointing.";
  recompute.section_present = draft.sections.contains("activation_checkpointing");
  recompute.partition_activations = draft.boolean(section + "partition_activations");
  recompute.contiguous_memory_optimization = draft.boolean(section + "contiguous_memory_optimization");
  recompute.cpu_checkpointing = draft.boolean(section + "cpu_checkpointing");
  recompute.synchronize_checkpoint_boundary = draft.boolean(section + "synchronize_checkpoint_boundary");
  recompute.profile = draft.boolean(section + "profile");
  if (draft.has(section + "number_checkpoints"))
    recompute.number_checkpoints = draft.integer(section + "number_checkpoints");
  config.aio = {draft.integer("aio.block_size"),           draft.integer("aio.queue_depth"),
                draft.integer("aio.intra_op_parallelism"), draft.boolean("aio.single_submit"),
                draft.boolean("aio.overlap_events"),       draft.boolean("aio.use_gds")};
  config.tensor_parallel_degree = std::max<std::int64_t>(
      {1, draft.integer("tensor_parallel.autotp_size"), draft.integer("tensor_parallel.tp.tp_size")});
  resolve_profile(draft);
  resolve_monitor("tensorboard", config.tensorboard, draft);
  resolve_monitor("csv_monitor", config.csv_monitor, draft);
  if (draft.has("steps_per_print")) config.steps_per_print = draft.integer("steps_per_print");
}

}  // namespace intarsia::config
