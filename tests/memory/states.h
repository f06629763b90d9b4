// What a rank holds after a training step, by the meter, and what the formulas say.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "intarsia/comm/run_ranks.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/tensor/memory_meter.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/step.h"

namespace intarsia::memory {

struct States {
  double formula = 0;          // bytes a rank
  std::int64_t planned = 0;    // plan::state_bytes
  std::int64_t measured = 0;   // largest rank: parameters, masters, gradients, optimizer state
  std::int64_t buffers = 0;    // largest rank: gathered slots and reduce buffers
  std::int64_t two_units = 0;  // fp32 bytes of two buffers of the largest unit
};

// docs/memory.md. P parameters, N ranks; gradients are fp32.
inline double state_formula(DType dtype, int stage, double params, double ranks) {
  const bool wide = dtype == DType::kF32;
  const double whole[] = {wide ? 16.0 : 18.0, wide ? 8.0 : 6.0, wide ? 4.0 : 2.0, 0.0};
  const double cut[] = {0.0, wide ? 8.0 : 12.0, wide ? 12.0 : 16.0, wide ? 16.0 : 18.0};
  return params * (whole[stage] + cut[stage] / ranks);
}

inline std::int64_t sum_of(const tensor::MemoryReading& reading, std::vector<tensor::MemoryCategory> categories) {
  std::int64_t sum = 0;
  for (const auto category : categories) sum += reading[category];
  return sum;
}

// One step of `model`, every micro-step with a batch of 1 x 8 tokens a rank, ranks as threads. Without the formula.
inline States measure(const formats::HfConfig& model, const config::TrainConfig& config) {
  using tensor::MemoryCategory;
  tensor::install_memory_meter();
  train::TrainJob job;
  job.model = model;
  job.random_weights = true;
  job.plan = plan::make_run_plan(config, model, 8, 1);

  States result;
  result.planned = plan::state_bytes(job.plan);
  std::vector<std::int64_t> sizes;
  for (const plan::FlatLayout& flat : job.plan.flats) sizes.push_back(flat.flat_numel() * 4);
  std::ranges::sort(sizes, std::greater<>());
  result.two_units = 2 * sizes[0];

  std::vector<tensor::MemoryReading> readings(static_cast<std::size_t>(job.plan.ranks));
  comm::run_grid(job.plan.grid(),
                 [&](const comm::DataAxes& axes) {
                   comm::Communicator& axis = axes.world;
                   tensor::set_memory_rank(axis.rank());
                   train::Assembly assembly = train::assemble(job, axes);
                   train::train_step(
                       *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale,
                       job.plan.accumulation,
                       [&](std::int64_t) {
                         return data::Batch{at::ones({1, 8}, at::kLong), at::ones({1, 8}, at::kLong), {}, 7};
                       },
                       [] { return train::RankReport{}; });
                   readings[static_cast<std::size_t>(axis.rank())] = tensor::read_memory(axis.rank());
                 },
                 {.force_copy = config.run.force_copy, .timeout_seconds = 120});
  for (const tensor::MemoryReading& reading : readings) {
    result.measured =
        std::max(result.measured, sum_of(reading, {MemoryCategory::kParams, MemoryCategory::kMasters,
                                                   MemoryCategory::kGradients, MemoryCategory::kOptimizer}));
    result.buffers = std::max(result.buffers, sum_of(reading, {MemoryCategory::kGathered, MemoryCategory::kReduce}));
  }
  return result;
}

inline States measure(const formats::HfConfig& model, DType dtype, int stage, int ranks, bool copy) {
  config::TrainConfig config;
  config.run.ranks = ranks;
  config.run.force_copy = copy;
  config.zero.stage = stage;
  config.precision = dtype == DType::kF32 ? config::Precision::kFp32 : config::Precision::kBf16;
  States result = measure(model, config);
  result.formula = state_formula(dtype, stage, static_cast<double>(plan::llama_spec(model).numel()), ranks);
  return result;
}

}  // namespace intarsia::memory
