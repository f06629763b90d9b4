// A training step by the meter and the recorder, beside plan's replay of it.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "intarsia/comm/recorder.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/memory/rank_memory.h"
#include "intarsia/tensor/memory_meter.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/step.h"

namespace intarsia::plan_measured {

struct Case {
  formats::HfConfig model;
  DType dtype = DType::kF32;
  int stage = 0;
  int ranks = 1;
  bool copy = false;
  bool overlap = false;  // as over gloo
  bool no_sync = false;
  config::Recompute recompute = config::Recompute::kNone;
  std::int64_t recompute_every = 2;
  std::optional<std::int64_t> checkpoints{};
  std::int64_t batch = 1, length = 128, accumulation = 1;
  bool isolated = false;  // two documents a sample
  config::LoraConfig lora{};
  std::string optimizer = "adamw";
  std::int64_t group = 0, hpz = 0;  // ranks of a shard group, of a copy of the parameters
  bool keep_gathered = false;       // reshard_after_forward false
  std::string reduced_as{};         // communication_data_type
};

struct Measured {
  plan::StepReplay replay;
  tensor::MemoryReading reading;            // of the rank with the highest peak
  std::vector<comm::OpRecord> collectives;  // of rank 0, during the step, over the shard group
  std::vector<comm::OpRecord> columns;      // and over the ranks with the same shard, where there are groups
  std::string log;                          // the first as text
};

inline plan::RunPlan plan_of(const Case& c) {
  config::TrainConfig config;
  config.run.ranks = c.ranks;
  config.run.force_copy = c.copy;
  config.run.no_sync = c.no_sync;
  config.run.recompute = c.recompute;
  config.run.recompute_every = c.recompute_every;
  config.activation_checkpointing.number_checkpoints = c.checkpoints;
  config.zero.stage = c.stage;
  config.precision = c.dtype == DType::kF32 ? config::Precision::kFp32 : config::Precision::kBf16;
  config.batch.micro_batch_size = c.batch;
  config.batch.accumulation = c.accumulation;
  config.lora = c.lora;
  config.optimizer.algorithm = c.optimizer;
  config.run.shard_size = c.group;
  if (c.hpz > 0) config.zero.hpz_partition_size = c.hpz;
  config.run.reshard_after_forward = !c.keep_gathered;
  config.communication.communication_data_type = c.reduced_as;
  plan::RunPlan plan = plan::make_run_plan(config, c.model, c.length, 1);
  plan.overlap = c.overlap;
  return plan;
}

inline at::Tensor two_documents(const Case& c) {
  return at::arange(c.length, at::kLong).remainder(c.length / 2).expand({c.batch, c.length}).contiguous();
}

// Two steps, ranks as threads; the meter's peak is that of the second.
inline Measured measure(const Case& c) {
  tensor::install_memory_meter();
  train::TrainJob job;
  job.model = c.model;
  job.random_weights = true;
  job.plan = plan_of(c);
  job.lora = plan::lora_plan(c.lora, job.plan.model);
  Measured result;
  result.replay = plan::replay_step(job.plan, c.model, {.isolated = c.isolated, .adapters_drop = c.lora.dropout > 0});
  std::vector<tensor::MemoryReading> readings(static_cast<std::size_t>(c.ranks));
  comm::run_grid(job.plan.grid(),
                 [&](const comm::DataAxes& given) {
                   tensor::set_memory_rank(given.world.rank());
                   comm::RecordingCommunicator axis(given.world), group(given.shard);
                   std::optional<comm::RecordingCommunicator> column;
                   const bool grouped = given.replicate != nullptr;
                   if (grouped) column.emplace(*given.replicate);
                   const comm::DataAxes axes = grouped ? comm::DataAxes(axis, group, &*column) : comm::DataAxes(axis);
                   train::Assembly assembly = train::assemble(job, axes);
                   for (int step = 0; step < 2; ++step) {
                     tensor::reset_memory_peak(axis.rank());
                     axis.clear();
                     group.clear();
                     if (column) column->clear();
                     train::train_step(
                         *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, c.accumulation,
                         [&](std::int64_t) {
                           return data::Batch{at::ones({c.batch, c.length}, at::kLong),
                                              at::ones({c.batch, c.length}, at::kLong),
                                              c.isolated ? two_documents(c) : at::Tensor(), c.batch * (c.length - 1),
                                              std::vector<std::int64_t>(static_cast<std::size_t>(c.batch))};
                         },
                         [] { return train::RankReport{}; });
                   }
                   readings[static_cast<std::size_t>(axis.rank())] = tensor::read_memory(axis.rank());
                   if (axis.rank() != 0) return;
                   result.collectives = grouped ? group.records() : axis.records();
                   if (column) result.columns = column->records();
                   result.log = axis.text();
                 },
                 {.force_copy = c.copy, .timeout_seconds = 300});
  result.reading = *std::ranges::max_element(readings, {}, &tensor::MemoryReading::total_peak);
  return result;
}

}  // namespace intarsia::plan_measured
