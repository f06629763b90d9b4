// What one rank holds of one flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "intarsia/comm/data_axes.h"
#include "intarsia/plan/run_plan.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::shard {

// Ranges count elements of the flat buffer. Note: who owns which tensor
//   compute    the only copy of the parameters in compute dtype. Mapped: a window into memory that all ranks of the
//              host's shard group share, each part written by the rank that keeps it. Whole: this rank's own. Else: the
//              part that this rank keeps.
//   master     the truth. In the compute dtype it is a view of `compute`; frozen buffers have none.
//   grad       sum over ranks and micro-steps of the window so far (by placement); none when frozen.
struct FlatState {
  const plan::FlatLayout* layout = nullptr;
  plan::Range whole;       // [0, flat_numel)
  plan::Range own;         // this rank's piece, which no other rank has: pieces of all ranks make the whole
  plan::Range kept;        // what this rank must write of `compute`: where the plan lets parameters rest
  plan::Range updated;     // what this rank's optimizer updates
  plan::Range held;        // what `compute` holds: kept, or the whole when it is mapped
  plan::Range grad_range;  // what `grad` holds
  bool mapped = false;     // `compute` is shared memory
  bool gathered = false;   // `compute` is a part only: it must be gathered before use
  at::Tensor compute;      // [held.size()], compute dtype
  at::Tensor master;       // [updated.size()], master dtype
  at::Tensor grad;         // [grad_range.size()], fp32
  std::unique_ptr<comm::SharedMemory> shared;

  // The piece of `tensor`, which holds `holds`, that is `range`.
  static at::Tensor piece(const at::Tensor& tensor, plan::Range holds, plan::Range range) {
    return tensor.narrow(0, range.begin - holds.begin, range.size());
  }
};

// Allocates one state a layout of the plan and fills it from `weights`; each rank reads what it holds, no more. Calls
// `filled` after each layout: its parameters will not be read again.
// Collective: all ranks of `axes`, in the order of the layouts.
// Memory: beside the states one parameter in fp32.
// Errors: those of weights.read(), kMemory.
std::vector<FlatState> make_flat_states(const plan::RunPlan& plan, const comm::DataAxes& axes,
                                        const plan::WeightSource& weights,
                                        const std::function<void(const plan::FlatLayout&)>& filled = {});

// Fills the part of `tensor` that rests by `to`, given that each rank holds its part by `from` of it (both parts of the
// flat buffer of `layout`; `tensor` holds `holds`, which contains the part by `to`). Collective over `axes`.
void expand(const plan::RunPlan& plan, const comm::DataAxes& axes, const plan::FlatLayout& layout,
            const at::Tensor& tensor, plan::Range holds, plan::Rest from, plan::Rest to, const char* phase);

}  // namespace intarsia::shard
