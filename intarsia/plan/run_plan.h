// Everything that a run is, decided and frozen before any memory is taken. Below plan nobody asks a configuration
// question. Pure data, without torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/plan/lr_schedule.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/optimizer_plan.h"
#include "intarsia/plan/unit_layout.h"

namespace intarsia::plan {

// Where the elements of parameters, gradients and optimizer state rest: whole on every rank, or cut over the ranks.
enum class Rest { kReplicated, kSharded };

// A ZeRO stage is a row of this table. Source: ZeRO (arXiv 1910.02054), section 5.
struct Placement {
  Rest params = Rest::kReplicated;
  Rest grads = Rest::kReplicated;
  Rest optimizer = Rest::kReplicated;
};

// Stage 0: nothing sharded; 1: optimizer; 2: and gradients; 3: and parameters. Errors: kConfig for another number.
Placement placement_of_stage(int stage);

enum class Recompute { kNone, kFull };

enum class CommBackend { kThreads, kShm, kGloo };

struct RunPlan {
  ModelSpec model;
  std::vector<FlatLayout> flats;  // layout_units(model, ranks)
  int ranks = 1;
  int stage = 0;
  Placement placement;
  DType compute_dtype = DType::kF32;  // kF32 or kBF16; masters, gradients' sums and optimizer state are fp32
  CommBackend backend = CommBackend::kShm;
  bool force_copy = false;  // never map parameters, gather them as several hosts would
  double comm_timeout_seconds = 600;

  std::int64_t micro_batch = 1;   // samples of one rank in one micro-step
  std::int64_t accumulation = 1;  // micro-steps per optimizer update
  std::int64_t seq_len = 0;
  std::int64_t steps = 0;        // optimizer updates
  double gradient_clipping = 0;  // limit of the global norm; 0: off
  OptimizerPlan optimizer;
  LrSchedule schedule;
  Recompute recompute = Recompute::kNone;
  std::uint64_t seed = 42;
  int threads = 1;  // intra-op threads of a rank

  std::int64_t global_batch() const { return micro_batch * accumulation * ranks; }
  // The backward is seeded with 1 / loss_divisor(), the power of two at or above the most targets that a micro-batch
  // can have, so that 16-bit gradients keep the size that a mean gives; the optimizer multiplies once by
  // loss_divisor() / tokens.
  std::int64_t loss_divisor() const;
};

}  // namespace intarsia::plan
