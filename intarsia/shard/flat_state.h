// What one rank holds of one flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "intarsia/comm/communicator.h"
#include "intarsia/plan/run_plan.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::shard {

// Ranges count elements of the flat buffer. Note: who owns which tensor
//   compute    the only copy of the parameters in compute dtype. Mapped: a window into memory that all ranks of the
//   host
//              share, written by each shard's owner only. Whole: this rank's own. Else: this rank's shard.
//   master     the truth, fp32. With fp32 compute it is a view of `compute`; frozen buffers have none.
//   grad       sum over ranks and micro-steps of the window so far (whole or shard, by placement); none when frozen.
struct FlatState {
  const plan::FlatLayout* layout = nullptr;
  plan::Range whole;       // [0, flat_numel)
  plan::Range shard;       // this rank's piece
  plan::Range updated;     // what this rank's optimizer updates: shard or whole
  plan::Range held;        // what `compute` holds: shard or whole
  plan::Range grad_range;  // what `grad` holds: shard or whole
  bool mapped = false;     // `compute` is shared memory
  bool gathered = false;   // `compute` is a shard only: it must be gathered before use
  at::Tensor compute;      // [held.size()], compute dtype
  at::Tensor master;       // [updated.size()], fp32
  at::Tensor grad;         // [grad_range.size()], fp32
  std::unique_ptr<comm::SharedMemory> shared;

  // The piece of `tensor`, which holds `holds`, that is `range`.
  static at::Tensor piece(const at::Tensor& tensor, plan::Range holds, plan::Range range) {
    return tensor.narrow(0, range.begin - holds.begin, range.size());
  }
};

// Allocates one state a layout of the plan and fills it from `weights`; each rank reads what it holds, no more. Calls
// `filled` after each layout: its parameters will not be read again.
// Collective: all ranks of `axis`, in the order of the layouts.
// Memory: beside the states one parameter in fp32.
// Errors: those of weights.read(), kMemory.
std::vector<FlatState> make_flat_states(const plan::RunPlan& plan, comm::Communicator& axis,
                                        const plan::WeightSource& weights,
                                        const std::function<void(const plan::FlatLayout&)>& filled = {});

}  // namespace intarsia::shard
