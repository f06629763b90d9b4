// The sharding engine: one mechanism for every ZeRO stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "intarsia/comm/data_axes.h"
#include "intarsia/nn/parameters.h"
#include "intarsia/nn/unit_events.h"
#include "intarsia/plan/run_plan.h"
#include "intarsia/plan/unit_order.h"
#include "intarsia/plan/weight_source.h"
#include "intarsia/shard/flat_state.h"
#include "intarsia/shard/gather_ring.h"
#include "intarsia/shard/reducer.h"

namespace intarsia::shard {

// Holds this rank's part of parameters and gradients by the plan's placement, makes units whole while a model runs
// them, and reduces their gradients. One optimizer update is:
//
//   engine.start_window();
//   for each micro-step: loss_sum = model(...) with engine.parameters(); engine.backward(loss_sum);
//   engine.finish_window();                  // gradients are now sums over ranks and micro-steps
//   s = engine.gradient_square_sum();        // also the first barrier: all have finished reading weights
//   update states()[i].master from states()[i].grad
//   engine.publish();                        // compute copies renewed; the second barrier: all have written
//
// Gradients carry the factor loss_scale / plan.loss_divisor(); the optimizer multiplies by loss_divisor / (loss_scale x
// tokens).
// With plan.overlap, what a unit needs next is gathered ahead: the order of the last micro-step says which unit
// follows. Collective: all ranks make the same calls in the same order. Threads: one thread a rank. Source: ZeRO (arXiv
// 1910.02054), sections 5 and 7; FSDP (arXiv 2304.11277), sections 3.2 and 4.
class Engine final : public nn::UnitEvents {
 public:
  // `plan` and the communicators must outlive the engine.
  Engine(const plan::RunPlan& plan, const comm::DataAxes& axes, const plan::WeightSource& weights);
  // The same for the leaves of somebody's module (nn::inspect), whose own values `weights` may read: a unit's leaves
  // lose their memory when the unit has been filled. Memory: the module, beside what has been filled of the states.
  Engine(const plan::RunPlan& plan, const comm::DataAxes& axes, const plan::WeightSource& weights,
         nn::Parameters parameters);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const nn::Parameters& parameters() const { return parameters_; }
  std::vector<FlatState>& states() { return states_; }
  const plan::RunPlan& plan() const { return plan_; }
  const comm::DataAxes& axes() const { return axes_; }
  comm::Communicator& world() const { return axes_.world; }

  void start_window();
  // Runs the backward of a micro-step's summed loss, seeded with loss_scale / loss_divisor, and adds its gradients to
  // the window. Shapes: scalar fp32. A loss without gradient (no target at all) counts as zeros.
  void backward(const at::Tensor& loss_sum, double loss_scale = 1);
  void finish_window();
  // Sum of squares of the whole gradient, each element once, in double; the same on all ranks, infinite or NaN when an
  // element is. In reproducible mode the sums of all blocks of 1,024 elements are exchanged (8 bytes each) and added in
  // one order; otherwise one number a rank.
  double gradient_square_sum();
  // Renews every copy in compute dtype from the masters. Call after the masters were written, also by a load.
  void publish();

  enum class What { kMaster, kGradient };
  // All elements of one flat buffer in fp32, on every rank, in host memory. Memory: the flat buffer once in fp32.
  at::Tensor gather(std::size_t flat, What what);

  void pre_forward(int unit) override;
  void post_forward(int unit, bool needs_backward) override;
  void pre_backward(int unit) override;
  void post_backward(int unit) override;

 private:
  struct UnitState {
    std::vector<std::size_t> flats;  // indices into states_
    int holds = 0;                   // times that somebody needs it whole
    int slot = -1;                   // its slot of the ring while gathered, or while a gather into it is under way
    std::vector<std::unique_ptr<comm::Work>> gathers;  // under way, one for each flat buffer
    int open_entries = 0;                              // forward entries whose backward has not ended
    bool in_backward = false;                          // some backward entry began in this micro-step
  };
  void hold(int unit);
  void release(int unit);
  void start_gathers(UnitState& unit);
  void expect(int unit);
  void forget_expected();
  void attach(UnitState& unit);
  void detach(UnitState& unit);
  void finish_unit(int unit);
  double add_block_sums() const;

  const plan::RunPlan& plan_;
  comm::DataAxes axes_;
  nn::Parameters parameters_;
  std::vector<FlatState> states_;
  Reducer reducer_;
  GatherRing ring_;
  std::vector<UnitState> units_;
  int memory_rank_;  // of the thread that made the engine
  bool sharded_params_;
  bool gathered_;          // a unit is made whole in a slot of the ring, not in mapped memory
  plan::UnitOrder order_;  // with plan.overlap
  int expected_ = -1;      // the unit whose slot is filled, or being filled, before anybody holds it
};

}  // namespace intarsia::shard
