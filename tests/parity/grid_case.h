// One cell of the parity grid: a model with every odd kind of parameter, run in some layout.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "fixture_case.h"

namespace intarsia::parity {

struct GridPlacement {
  const char* name;
  int stage;
  bool halves;  // shard groups of half the ranks
  bool pairs;   // shard groups of two ranks
  bool hpz;     // the groups hold second copies only
  bool no_sync = false;
};

// How units become whole: read where they lie, copied when asked for, or copied ahead (RunPlan::overlap).
enum class Gathering { kMapped, kCopied, kAhead };

inline const std::vector<GridPlacement>& grid_placements() {
  static const std::vector<GridPlacement> placements = {
      {"stage0", 0, false, false, false},       {"stage1", 1, false, false, false},
      {"stage2", 2, false, false, false},       {"stage3", 3, false, false, false},
      {"hybrid", 3, true, false, false},        {"hybrid_zero2", 2, true, false, false},
      {"mics", 3, false, true, false},          {"hpz", 3, true, false, true},
      {"no_sync", 3, false, false, false, true}};
  return placements;
}

struct GridCase {
  int placement = 0;  // index into grid_placements()
  DType dtype = DType::kF32;
  std::int64_t logical = 8;  // logical micro-batches of one sample
  plan::Recompute recompute = plan::Recompute::kNone;
  int ranks = 1;
  Gathering gathering = Gathering::kMapped;
  bool reproducible = true;

  bool copied() const { return gathering != Gathering::kMapped; }
  const GridPlacement& rests() const { return grid_placements()[static_cast<std::size_t>(placement)]; }
  bool exists() const {
    const bool groups = rests().halves || rests().pairs;
    return groups ? ranks >= 4 : ranks > 1 || (placement == 0 && !copied());
  }
};

inline void PrintTo(const GridCase& cell, std::ostream* out) {
  *out << cell.rests().name << " " << short_name(cell.dtype) << " L" << cell.logical << " recompute "
       << static_cast<int>(cell.recompute) << " ranks " << cell.ranks
       << (cell.gathering == Gathering::kAhead ? " ahead"
           : cell.copied()                     ? " copied"
                                               : " mapped");
}

// llama-tied (tied embedding, sizes that do not divide) with random weights and, beside its own parameters: frozen ones
// in a unit of their own kind and among others, one that nobody reads, and one without elements.
inline train::TrainJob make_job(const GridCase& cell, std::int64_t steps) {
  const auto batches = formats::SafetensorsFile::open(fixture("llama-tied/batches.safetensors"));
  at::Tensor ids = read_tensor(batches, "input_ids"), labels = read_tensor(batches, "labels");
  ids = ids.reshape({-1, ids.size(-1)});
  labels = labels.reshape({-1, labels.size(-1)});
  train::TrainJob job;
  job.model = plan::find_model(fixture("llama-tied/model")).config;
  job.random_weights = true;
  job.dataset = std::make_shared<TensorDataset>(ids, labels);

  config::TrainConfig config;
  config.run.ranks = cell.ranks;
  config.run.force_copy = cell.copied();
  config.run.no_sync = cell.rests().no_sync;
  config.run.reproducible = cell.reproducible;
  config.run.logical_micro_batches = cell.reproducible ? cell.logical : 0;
  config.zero.stage = cell.rests().stage;
  const int group = cell.rests().halves ? cell.ranks / 2 : cell.rests().pairs ? 2 : 0;
  if (cell.rests().hpz) {
    config.zero.hpz_partition_size = group;
  } else {
    config.run.shard_size = group;
  }
  config.precision = cell.dtype == DType::kF32    ? config::Precision::kFp32
                     : cell.dtype == DType::kBF16 ? config::Precision::kBf16
                                                  : config::Precision::kFp16;
  // So high that the first steps overflow in fp16.
  if (cell.dtype == DType::kF16)
    config.loss_scale = {.mode = config::LossScaleConfig::Mode::kDynamic, .initial = 0x1p20, .hysteresis = 1};
  // In reproducible mode a larger micro-batch is asked for than is run.
  const std::int64_t share = cell.logical / cell.ranks;
  config.batch = {cell.logical, cell.reproducible ? share : 1, cell.reproducible ? 1 : share};
  config.optimizer.lr = 0.01;
  config.optimizer.weight_decay = 0.1;
  config.gradient_clipping = 0.5;
  job.plan = plan::make_run_plan(config, job.model, ids.size(1), steps);
  job.plan.recompute.policy = cell.recompute;
  job.plan.overlap = cell.gathering == Gathering::kAhead;

  plan::ModelSpec& model = job.plan.model;
  for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.norm.weight"})
    model.params[static_cast<std::size_t>(model.find(name).value())].frozen = true;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    model.units[1].params.push_back(static_cast<int>(model.params.size()));
    model.params.push_back({.name = name, .shape = std::move(shape), .unit = 1});
  };
  add("unused", {5});
  add("empty", {0, 8});
  job.plan.flats = plan::layout_units(model, cell.ranks);
  job.sampler = {.num_samples = ids.size(0),
                 .shuffle = true,
                 .micro_batch = job.plan.micro_batch,
                 .accumulation = job.plan.accumulation,
                 .ranks = cell.ranks};
  if (cell.reproducible) job.sampler.logical = job.plan.logical_order();
  return job;
}

// NaN equals NaN: an overflow is one in every layout.
inline bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct GridRun {
  std::vector<train::StepResult> steps;
  std::vector<at::Tensor> gradients;  // of the last step, sums before averaging
  std::vector<at::Tensor> weights;
};

// Rank 0's view, after checking that all ranks report the same.
inline GridRun run(const GridCase& cell, std::int64_t steps, DeviceKind device = DeviceKind::kCpu) {
  train::TrainJob job = make_job(cell, steps);
  job.plan.device = device;
  std::vector<GridRun> runs(static_cast<std::size_t>(cell.ranks));
  comm::run_grid(
      job.plan.grid(),
      [&](const comm::DataAxes& axes) {
        train::Assembly assembly = train::assemble(job, axes);
        const data::Sampler sampler(job.sampler);
        GridRun mine;
        std::int64_t position = 0;
        for (std::int64_t step = 0; step < steps; ++step) {
          const data::Window window = sampler.next_window(position).value();
          position = window.end;
          mine.steps.push_back(train::train_step(
              *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, sampler.micro_steps(window),
              [&](std::int64_t micro) {
                return data::make_batch(*job.dataset, sampler, window, axes.world.rank(), micro);
              },
              [] { return train::RankReport{}; },
              [&](double) {
                if (step + 1 < steps) return;
                for (std::size_t flat = 0; flat < assembly.engine->states().size(); ++flat)
                  if (assembly.engine->states()[flat].layout->trainable)
                    mine.gradients.push_back(assembly.engine->gather(flat, shard::Engine::What::kGradient).clone());
              }));
        }
        mine.weights = gather_parameters(*assembly.engine, shard::Engine::What::kMaster);
        runs[static_cast<std::size_t>(axes.world.rank())] = std::move(mine);
      },
      {.force_copy = cell.copied(), .device = device, .timeout_seconds = 120});
  for (const GridRun& other : runs)
    for (std::size_t step = 0; step < other.steps.size(); ++step) {
      EXPECT_EQ(other.steps[step].loss, runs[0].steps[step].loss);
      EXPECT_TRUE(same_number(other.steps[step].grad_norm, runs[0].steps[step].grad_norm));
    }
  return runs[0];
}

}  // namespace intarsia::parity
