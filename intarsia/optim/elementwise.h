// Optimizers that update each element from that element's own numbers: one definition each, on any range.
#pragma once

#include "intarsia/optim/optimizer.h"

namespace intarsia::optim {

// One update of a chunk, whose states are in the order of plan::state_specs.
using ElementwiseRule = void (*)(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk);
void update_adam(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk);
void update_sgd(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk);
void update_lion(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk);
void update_adagrad(const plan::OptimizerPlan& options, const Rates& rates, const Chunk& chunk);

class Elementwise final : public Optimizer {
 public:
  Elementwise(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, comm::Communicator& axis, Kinds kinds,
              ElementwiseRule rule)
      : Optimizer(plan, states, axis), kinds_(std::move(kinds)), rule_(rule) {}

 private:
  void update() override {
    for (const Piece& piece : pieces()) {
      const Rates now = rates(piece.param);
      for_each_chunk(piece, kinds_, false, [&](const Chunk& chunk) { rule_(options(), now, chunk); });
    }
  }

  Kinds kinds_;
  ElementwiseRule rule_;
};

}  // namespace intarsia::optim
