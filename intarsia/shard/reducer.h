// From the gradients that autograd produces to sums over ranks and micro-steps, in each flat buffer's `grad`.
#pragma once

#include <vector>

#include "intarsia/comm/communicator.h"
#include "intarsia/shard/flat_state.h"

namespace intarsia::shard {

// Gradients whole (stages 0, 1): each micro-step adds into `grad`; one reduction at the window's end.
// Gradients sharded (2, 3): each micro-step fills an fp32 buffer of the unit, reduced into the shard when the unit's
// backward is over. Parameters without a gradient count as zeros. Sums are fp32, over ranks in rank order.
// Source: ZeRO (arXiv 1910.02054), sections 5.2 and 7.2.1.
class Reducer {
 public:
  Reducer(const plan::RunPlan& plan, comm::Communicator& axis, std::vector<FlatState>& states);

  // Adds a parameter's gradient (its shape, any float dtype) in the flat buffer `flat` at `slot`.
  void add(std::size_t flat, const plan::ParamSlot& slot, const at::Tensor& gradient);

  // This micro-step will add nothing more to flat buffer `flat`. Collective when gradients are sharded.
  void finish_flat(std::size_t flat);

  // The window's last micro-step is over. Collective when gradients are whole.
  void finish_window();

  // Forgets all sums: the next window starts.
  void start_window();

 private:
  at::Tensor& pending(std::size_t flat);

  const plan::RunPlan& plan_;
  comm::Communicator& axis_;
  std::vector<FlatState>& states_;
  bool whole_;                       // add straight into `grad`
  std::vector<at::Tensor> buffers_;  // free fp32 buffers of the largest flat buffer's size
  std::vector<at::Tensor> pending_;  // by flat: the buffer it borrows in this micro-step, or undefined
  std::vector<bool> started_;        // by flat: `grad` holds something of this window
};

}  // namespace intarsia::shard
