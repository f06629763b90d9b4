// From the gradients that autograd produces to sums over ranks and micro-steps, in each flat buffer's `grad`.
#pragma once

#include <memory>
#include <vector>

#include "intarsia/comm/data_axes.h"
#include "intarsia/shard/flat_state.h"
#include "intarsia/shard/tree_sum.h"

namespace intarsia::shard {

// Gradients replicated (stages 0, 1): each micro-step adds into `grad`; one reduction at the window's end.
// Gradients sharded or spread (2, 3): each micro-step fills an fp32 buffer of the unit, reduced when the unit's
// backward is over. With plan.overlap that reduction goes on while the next unit's buffer fills, and is waited for
// before the one after it starts. Parameters without a gradient count as zeros. Sums over micro-steps are fp32; over
// ranks they have the plan's reduce_dtype and form a balanced binary tree in rank order. In reproducible mode the sums
// over micro-steps continue that tree (TreeSum). Source: ZeRO (arXiv 1910.02054), sections 5.2 and 7.2.1; MiCS (arXiv
// 2205.00119), section 3.4, for two axes.
class Reducer {
 public:
  Reducer(const plan::RunPlan& plan, const comm::DataAxes& axes, std::vector<FlatState>& states);

  // Forgets all sums: the next window starts.
  void start_window();

  // Adds a parameter's gradient (its shape, any float dtype) in the flat buffer `flat` at `slot`.
  void add(std::size_t flat, const plan::ParamSlot& slot, const at::Tensor& gradient);

  // This micro-step will add nothing more to flat buffer `flat`. Collective unless gradients are replicated.
  void finish_flat(std::size_t flat);

  // The micro-step is over: what it did not touch counts as zeros.
  void finish_micro_step();

  // The window's last micro-step is over: `grad` holds the sum over ranks and micro-steps where the optimizer needs it.
  // Collective.
  void finish_window();

 private:
  // An fp32 buffer that gradients of one micro-step gather in. What no gradient has come to holds anything.
  struct Gathering {
    at::Tensor buffer = {};
    std::vector<bool> filled = {};  // by slot
  };
  Gathering& pending(std::size_t flat);
  void clear_unfilled(std::size_t flat);
  at::Tensor take_buffer(std::int64_t numel);
  using WorkPtr = std::unique_ptr<comm::Work>;
  WorkPtr start_micro_step(const FlatState& state, const at::Tensor& in, const at::Tensor& out);
  WorkPtr start(comm::Communicator& axis, const at::Tensor& out, const at::Tensor& in, const comm::Tag& tag);
  void land();

  const plan::RunPlan& plan_;
  comm::DataAxes axes_;
  std::vector<FlatState>& states_;
  bool whole_;                       // add straight into `grad`
  std::vector<at::Tensor> buffers_;  // free fp32 buffers of the largest flat buffer's size
  std::vector<Gathering> pending_;   // by flat: the buffer it borrows in this micro-step, or none
  // The reduction that is under way: it reads `buffer`, and what it gives is added to `sum` when that is defined.
  struct Flying {
    at::Tensor buffer = {}, part = {}, sum = {};
    WorkPtr work = {};
  } flying_;
  std::vector<bool> started_;   // by flat: `grad` holds something of this window
  std::vector<bool> finished_;  // by flat: this micro-step's sum is in its place
  std::vector<TreeSum> trees_;  // by flat; empty unless reproducible
  std::int64_t micro_step_ = 0;
};

}  // namespace intarsia::shard
