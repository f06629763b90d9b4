#include "intarsia/config/readers/deepspeed_rows.h"

namespace intarsia::config {
namespace {

const char* const kUnits = "units are gathered and reduced whole, in a fixed order; there are no buckets to size";
const char* const kWindow = "at most two units are whole at a time, each from its use to the end of its use";
const char* const kOffload = "offloading is not built yet";
const char* const kFp32Sum = "gradients are always reduced in fp32";
const char* const kMonitor = "metrics go to metrics.jsonl in the run's directory";
const char* const kProfile = "metrics.jsonl has the times of every update";
const char* const kQuantized = "quantised communication is not built yet";

void add_top(std::vector<KeySpec>& keys) {
  keys.insert(
      keys.end(),
      {integer("train_batch_size", "", 1),
       integer("train_micro_batch_size_per_gpu", "", 1),
       integer("gradient_accumulation_steps", "", 1),
       integer("steps_per_print", "", 1),
       number("gradient_clipping", "1.0", 0),
       flag("managed_gradient_accumulation", "true", E::kRefused, "the training loop owns the accumulation window"),
       flag("prescale_gradients", "false"),
       positive(number("gradient_predivide_factor", "1.0", 0)),
       choice("gradient_allreduce_op", "\"mean\"", {"mean", "sum"}, E::kRefused,
              "gradients are averaged over all target tokens"),
       choice("communication_data_type", "", {"fp32", "fp16", "bf16", "bfp16"}),
       choice("seq_parallel_communication_data_type", "", {"fp32", "fp16", "bf16", "bfp16"}, E::kNoEffect,
              "there is no sequence parallelism"),
       flag("sparse_gradients", "false", E::kNoEffect, "embedding gradients are dense"),
       flag("disable_allgather", "false", E::kNoEffect, kUnits),
       flag("dump_state", "false", E::kNoEffect, "intarsia config show prints the state"),
       flag("memory_breakdown", "false", E::kNoEffect, "metrics.jsonl has peak_bytes of every update"),
       flag("wall_clock_breakdown", "false"),
       flag("graph_harvesting", "false", E::kNoEffect, "there are no device graphs"),
       flag("dataloader_drop_last", "false", E::kNoEffect, "intarsia.last_window decides"),
       flag("use_data_before_expert_parallelism", "false", E::kNoEffect, "there is no expert parallelism"),
       flag("zero_allow_untested_optimizer", "false", E::kNoEffect,
            "every optimizer that is built works with every stage"),
       flag("zero_force_ds_cpu_optimizer", "true", E::kNoEffect, "there is one optimizer for every device"),
       integer("sequence_parallel_size", "1", 1, E::kRefused, "sequence parallelism is not built yet"),
       text("log_level", "", E::kNoEffect, "messages have one level"),
       integer("vocabulary_size", "", 1, E::kNoEffect, "the model's config.json decides"),
       integer("seed", "", 0, E::kNoEffect, "intarsia.seed decides"),
       flag("timers.throughput.enabled", "true", E::kNoEffect, kProfile),
       flag("timers.throughput.synchronized", "true", E::kNoEffect, kProfile)});
}

void add_precision(std::vector<KeySpec>& keys) {
  keys.insert(keys.end(), {flag("fp16.enabled", "false"),
                           flag("fp16.auto_cast", "false", E::kNoEffect, "inputs are token numbers"),
                           number("fp16.loss_scale", "0", 0),
                           integer("fp16.initial_scale_power", "16", 0),
                           positive(integer("fp16.loss_scale_window", "1000", 0)),
                           integer("fp16.hysteresis", "2", 1),
                           flag("fp16.consecutive_hysteresis", "false"),
                           positive(number("fp16.min_loss_scale", "1", 0)),
                           flag("fp16.fp16_master_weights_and_grads", "false", E::kRefused, "master weights are fp32"),
                           flag("bf16.enabled", "false"),
                           flag("bf16.immediate_grad_update", "false", E::kNoEffect, kFp32Sum),
                           flag("bf16.check_grad_overflow", "true", E::kNoEffect,
                                "an update with a gradient that is not finite is always skipped"),
                           flag("bf16.bf16_master_weights_and_grads", "false"),
                           flag("bf16.bf16_optimizer_states", "false"),
                           choice("data_types.grad_accum_dtype", "", {"fp32", "fp16", "bf16", "bfp16"}),
                           choice("data_types.param_dtype", "", {"fp32", "fp16", "bf16", "bfp16"}, E::kNoEffect,
                                  "bf16.enabled and fp16.enabled decide"),
                           choice("data_types.buffer_dtype", "", {"fp32", "fp16", "bf16", "bfp16"}, E::kNoEffect,
                                  "buffers keep their own type"),
                           flag("torch_autocast.enabled", "false"),
                           choice("torch_autocast.dtype", "\"bfloat16\"",
                                  {"bfloat16", "torch.bfloat16", "bf16", "float16", "torch.float16", "fp16", "half"}),
                           anything("torch_autocast.lower_precision_safe_modules", E::kHonoured, "")});
}

void add_zero(std::vector<KeySpec>& keys) {
  const auto zero = [](const char* key) { return std::string("zero_optimization.") + key; };
  keys.push_back({zero("stage"), KeyType::kStage, "0", E::kHonoured, "", 0, false, {}, 3});
  keys.insert(
      keys.end(),
      {flag(zero("contiguous_gradients"), "true", E::kNoEffect, "gradients always go to one flat buffer per unit"),
       flag(zero("reduce_scatter"), "true", E::kNoEffect, "sharded gradients are always reduce-scattered"),
       positive(integer(zero("reduce_bucket_size"), "500000000", 0, E::kNoEffect, kUnits)),
       flag(zero("use_multi_rank_bucket_allreduce"), "true", E::kNoEffect, kUnits),
       flag(zero("allgather_partitions"), "true", E::kNoEffect, kUnits),
       positive(integer(zero("allgather_bucket_size"), "500000000", 0, E::kNoEffect, kUnits)),
       flag(zero("overlap_comm"), ""),
       flag(zero("compute_grad_norm"), "true", E::kNoEffect, "metrics.jsonl has the norm of every update"),
       flag(zero("load_from_fp32_weights"), "true", E::kRefused,
            "fp32 masters are the truth, nothing rebuilds them from 16 bits"),
       flag(zero("elastic_checkpoint"), "false", E::kNoEffect, "checkpoints do not depend on the number of ranks"),
       integer(zero("sub_group_size"), "1000000000", 0, E::kNoEffect, "the optimizer works on one shard per unit"),
       integer(zero("stage3_prefetch_bucket_size"), "50000000", 0, E::kNoEffect,
               "the next unit is gathered ahead, whole; overlap_comm false turns that off"),
       integer(zero("stage3_param_persistence_threshold"), "100000", 0, E::kNoEffect,
               "every parameter of a unit is gathered with its unit"),
       integer(zero("stage3_model_persistence_threshold"), "9223372036854775807", 0, E::kNoEffect,
               "every parameter of a unit is gathered with its unit"),
       integer(zero("stage3_max_live_parameters"), "1000000000", 0, E::kNoEffect, kWindow),
       integer(zero("stage3_max_reuse_distance"), "1000000000", 0, E::kNoEffect, kWindow),
       flag(zero("stage3_gather_16bit_weights_on_model_save"), "false"),
       integer(zero("stage3_module_granularity_threshold"), "0", 0, E::kNoEffect, kUnits),
       flag(zero("stage3_use_all_reduce_for_fetch_params"), "false", E::kNoEffect, kUnits),
       flag(zero("stage3_allgather_sequential"), "false", E::kNoEffect, kUnits),
       flag(zero("ignore_unused_parameters"), "true", E::kNoEffect, "a parameter without a gradient counts as zeros"),
       flag(zero("legacy_stage1"), "false", E::kRefused, "DeepSpeed itself removed it"),
       flag(zero("round_robin_gradients"), "false", E::kNoEffect, kUnits),
       flag(zero("parameter_alignment"), "false", E::kNoEffect, "parameters are always aligned to 64 bytes"),
       integer(zero("zero_hpz_partition_size"), "1", 1),
       flag(zero("zero_quantized_weights"), "false", E::kRefused, kQuantized),
       flag(zero("zero_quantized_nontrainable_weights"), "false", E::kRefused, kQuantized),
       flag(zero("zero_quantized_gradients"), "false", E::kRefused, kQuantized),
       anything(zero("zeropp_loco_param"), E::kLater, kQuantized),
       integer(zero("mics_shard_size"), "-1", -1),
       flag(zero("mics_hierarchical_params_gather"), "false", E::kNoEffect,
            "parameters are gathered inside a shard group only"),
       flag(zero("memory_efficient_linear"), "true", E::kNoEffect, "no layer is replaced"),
       flag(zero("pipeline_loading_checkpoint"), "false", E::kNoEffect, "each rank reads only what it owns"),
       flag(zero("override_module_apply"), "true", E::kNoEffect, "no function is replaced"),
       flag(zero("log_trace_cache_warnings"), "false", E::kNoEffect, "the order of units is known before the run"),
       flag(zero("enable_sanity_checks"), "false", E::kNoEffect, "the checks are always on"),
       flag(zero("save_muon_momentum_buffer_in_memory"), "false", E::kNoEffect,
            "Muon's momentum rests where all optimizer state does"),
       anything(zero("leaf_module"), E::kNoEffect, "units are embeddings, blocks and heads"),
       anything(zero("zenflow"), E::kLater, "ZenFlow is not built")});
  for (const std::string& section : {zero("offload_optimizer"), zero("offload_param")}) {
    const bool param = section.ends_with("param");
    keys.insert(keys.end(),
                {choice(section + ".device", "\"none\"", {"none", "cpu", "nvme"}), text(section + ".nvme_path", ""),
                 flag(section + ".pin_memory", "true", E::kNoEffect, kOffload),
                 integer(section + ".buffer_count", param ? "5" : "4", 1, E::kNoEffect, kOffload)});
    if (param) {
      keys.insert(keys.end(), {positive(integer(section + ".buffer_size", "100000000", 0, E::kNoEffect, kOffload)),
                               integer(section + ".max_in_cpu", "1000000000", 0, E::kNoEffect, kOffload)});
    } else {
      keys.insert(keys.end(), {flag(section + ".pipeline_read", "false", E::kNoEffect, kOffload),
                               flag(section + ".pipeline_write", "false", E::kNoEffect, kOffload),
                               flag(section + ".pipeline", "false", E::kNoEffect, kOffload),
                               flag(section + ".fast_init", "false", E::kNoEffect, kOffload),
                               at_most(1, number(section + ".ratio", "1.0", 0, E::kNoEffect, kOffload)),
                               flag(section + ".super_offload", "false", E::kRefused, "SuperOffload is not built"),
                               at_most(1, number(section + ".cpuadam_cores_perc", "0.8", 0, E::kNoEffect, kOffload))});
    }
  }
  keys.insert(keys.end(), {flag(zero("cpu_offload"), "false"), flag(zero("cpu_offload_param"), "false"),
                           flag(zero("cpu_offload_use_pin_memory"), "false", E::kNoEffect, kOffload)});
}

void add_sections(std::vector<KeySpec>& keys) {
  const char* const device = "activations are already in host memory on a CPU device";
  keys.insert(
      keys.end(),
      {flag("activation_checkpointing.partition_activations", "false", E::kNoEffect,
            "there are no tensor-parallel ranks, so there is nothing to partition"),
       flag("activation_checkpointing.contiguous_memory_optimization", "false", E::kNoEffect,
            "block inputs are few and large; there is nothing to defragment"),
       flag("activation_checkpointing.cpu_checkpointing", "false", E::kNoEffect, device),
       integer("activation_checkpointing.number_checkpoints", "", 1),
       flag("activation_checkpointing.synchronize_checkpoint_boundary", "false", E::kNoEffect,
            "there is no stream to synchronise"),
       flag("activation_checkpointing.profile", "false"),
       positive(integer("aio.block_size", "1048576", 0, E::kNoEffect, kOffload)),
       integer("aio.queue_depth", "8", 1, E::kNoEffect, kOffload),
       integer("aio.intra_op_parallelism", "1", 1, E::kNoEffect, kOffload),
       flag("aio.single_submit", "false", E::kNoEffect, kOffload),
       flag("aio.overlap_events", "true", E::kNoEffect, kOffload),
       flag("aio.use_gds", "false", E::kNoEffect, kOffload),
       integer("tensor_parallel.autotp_size", "0", 0, E::kRefused, "tensor parallelism is not built yet"),
       integer("tensor_parallel.tp.tp_size", "1", 1, E::kRefused, "tensor parallelism is not built yet"),
       integer("tensor_parallel.tp.tp_grain_size", "1", 1, E::kNoEffect, "tensor parallelism is not built yet"),
       text("tensor_parallel.preset_model", "", E::kNoEffect, "tensor parallelism is not built yet"),
       flag("tensor_parallel.tp_overlap_comm", "false", E::kNoEffect, "tensor parallelism is not built yet"),
       anything("tensor_parallel.partition_config", E::kNoEffect, "tensor parallelism is not built yet"),
       flag("flops_profiler.enabled", "false"),
       integer("flops_profiler.profile_step", "1", 0),
       integer("flops_profiler.module_depth", "-1", -1, E::kNoEffect, "a model's units are one level"),
       integer("flops_profiler.top_modules", "1", 0),
       flag("flops_profiler.detailed", "true"),
       text("flops_profiler.output_file", ""),
       number("flops_profiler.recompute_fwd_factor", "0.0", 0, E::kNoEffect,
              "operations are counted, also of recomputation"),
       flag("comms_logger.enabled", "false"),
       flag("comms_logger.verbose", "false"),
       flag("comms_logger.prof_all", "true"),
       flag("comms_logger.debug", "false", E::kNoEffect, "verbose names the unit of each operation"),
       anything("comms_logger.prof_ops", E::kHonoured, ""),
       choice("checkpoint.tag_validation", "\"Warn\"",
              {"Warn", "WARN", "warn", "Ignore", "IGNORE", "ignore", "Fail", "FAIL", "fail"}, E::kNoEffect,
              "checkpoint names are chosen by one rank"),
       flag("checkpoint.load_universal", "false", E::kNoEffect, "checkpoints do not depend on the number of ranks"),
       flag("checkpoint.use_node_local_storage", "false", E::kRefused, "checkpoints go to the run's directory"),
       anything("checkpoint.parallel_write", E::kNoEffect, "every rank writes its own shard"),
       flag("checkpoint.checkpoint_serialization", "true", E::kNoEffect, "checkpoints are safetensors"),
       anything("checkpoint.writer", E::kNoEffect, "checkpoints are safetensors"),
       anything("pipeline", E::kNoEffect, "pipeline parallelism is not built")});
  for (const char* monitor : {"tensorboard", "csv_monitor"}) {
    const std::string prefix = std::string(monitor) + ".";
    keys.insert(keys.end(), {flag(prefix + "enabled", "false"), text(prefix + "output_path", "\"\""),
                             text(prefix + "job_name", "\"DeepSpeedJobName\"")});
  }
  for (const char* monitor : {"wandb", "comet"}) {
    const std::string prefix = std::string(monitor) + ".";
    keys.push_back(flag(prefix + "enabled", "false", E::kNoEffect, kMonitor));
    for (const char* key : {"output_path", "job_name", "group", "team", "project", "workspace", "api_key",
                            "experiment_name", "experiment_key", "mode"}) {
      keys.push_back(text(prefix + key, "", E::kNoEffect, kMonitor));
    }
    keys.push_back(flag(prefix + "online", "", E::kNoEffect, kMonitor));
    keys.push_back(integer(prefix + "samples_log_interval", "100", 1, E::kNoEffect, kMonitor));
  }
  keys.push_back(anything("elasticity", E::kRemoved,
                          "DeepSpeed has removed elasticity; delete the section and give the batch keys"));
  for (const char* section :
       {"autotuning", "curriculum_learning", "data_efficiency", "sparse_attention", "progressive_layer_drop",
        "eigenvalue", "quantize_training", "compression_training", "weight_quantization", "compile", "hybrid_engine",
        "expert_parallel", "nebula", "datastates", "amp"}) {
    keys.push_back(anything(section, E::kLater, std::string(section) + " is not built"));
  }
  keys.push_back(text("optimizer.type", ""));
  keys.push_back(flag("optimizer.legacy_fusion", "false", E::kNoEffect, "there is one optimizer for every device"));
  keys.push_back(text("scheduler.type", ""));
}

}  // namespace

std::vector<KeySpec> make_deepspeed_keys() {
  std::vector<KeySpec> keys;
  add_top(keys);
  add_precision(keys);
  add_zero(keys);
  add_sections(keys);
  return keys;
}

}  // namespace intarsia::config
