// Everything that a run is, decided and frozen before any memory is taken. Below plan nobody asks a configuration
// question. Pure data, without torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/device.h"
#include "intarsia/base/dtype.h"
#include "intarsia/plan/lr_schedule.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/optimizer_plan.h"
#include "intarsia/plan/placement.h"
#include "intarsia/plan/recompute_plan.h"
#include "intarsia/plan/unit_layout.h"

namespace intarsia::plan {

enum class CommBackend { kThreads, kShm, kGloo };

// The factor on the loss that keeps 16-bit gradients in range. Source: DeepSpeed 0.19; Micikevicius et al. (arXiv
// 1710.03740), section 3.2.
struct LossScalePlan {
  bool dynamic = false;
  double initial = 1;                   // the scale of a run without fp16, a static scale, or the first dynamic one
  std::int64_t window = 1000;           // updates without overflow until the scale doubles
  std::int64_t hysteresis = 2;          // overflows until the scale halves
  bool consecutive_hysteresis = false;  // an update without overflow restores the hysteresis
  double min = 1;
};

struct RunPlan {
  ModelSpec model;
  std::vector<FlatLayout> flats;  // layout_units(model, ranks)
  int ranks = 1;
  int stage = 0;
  Placement placement;
  DType compute_dtype = DType::kF32;  // of parameters and gradients in forward and backward
  DType master_dtype = DType::kF32;   // of the weights that the optimizer updates; 16 bit: the compute copies are they
  DType reduce_dtype = DType::kF32;   // of gradients while ranks add them; their sum over micro-steps is fp32
  double reduce_factor = 1;           // gradients are multiplied by it before, and divided after, a 16-bit reduction
  LossScalePlan loss_scale;
  std::optional<DType> autocast;  // kBF16 or kF16: type of matrix products where compute_dtype is kF32 otherwise
  CommBackend backend = CommBackend::kShm;
  DeviceKind device = DeviceKind::kCpu;  // where parameters rest and the model runs
  bool force_copy = false;               // never map parameters, gather them as several hosts would
  // A unit's gather starts while the unit before it is computed, and its reduction ends while the next one is. For
  // backends whose operations go on by themselves. Memory: a second slot and a second reduce buffer.
  bool overlap = false;
  double comm_timeout_seconds = 600;

  std::int64_t micro_batch = 1;   // samples of one rank in one micro-step
  std::int64_t accumulation = 1;  // micro-steps per optimizer update
  std::int64_t seq_len = 0;
  std::int64_t steps = 0;        // optimizer updates
  double gradient_clipping = 0;  // limit of the global norm; 0: off
  OptimizerPlan optimizer;
  LrSchedule schedule;
  RecomputePlan recompute;
  std::uint64_t seed = 42;
  int threads = 1;  // intra-op threads of a rank
  // The same bits in every layout of a chain: sums form one binary tree over the window's micro_batch-sized logical
  // micro-batches.
  bool reproducible = false;

  Grid grid() const { return {.shards = ranks / placement.replicas, .replicas = placement.replicas}; }
  LogicalOrder logical_order() const { return {.grid = grid(), .grads = placement.grads, .steps = accumulation}; }
  std::int64_t global_batch() const { return micro_batch * accumulation * ranks; }
  // The backward is seeded with 1 / loss_divisor(), the power of two at or above the most targets that a micro-batch
  // can have, so that 16-bit gradients keep the size that a mean gives; the optimizer multiplies once by
  // loss_divisor() / tokens.
  std::int64_t loss_divisor() const;
};

}  // namespace intarsia::plan
