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

// The same on tensors of a device; optimizers without one are updated on the host.
using DeviceRule = void (*)(const plan::OptimizerPlan& options, const Rates& rates, const DeviceChunk& chunk);
void update_adam_on_device(const plan::OptimizerPlan& options, const Rates& rates, const DeviceChunk& chunk);

class Elementwise final : public Optimizer {
 public:
  Elementwise(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, const comm::DataAxes& axes, Kinds kinds,
              ElementwiseRule rule, DeviceRule on_device = nullptr)
      : Optimizer(plan, states, axes), kinds_(std::move(kinds)), rule_(rule), on_device_(on_device) {}

 private:
  void update() override {
    for (const Piece& piece : pieces()) {
      const Rates now = rates(piece.param);
      if (on_device_ != nullptr && plan().device != DeviceKind::kCpu) {
        for_each_device_chunk(piece, kinds_, [&](const DeviceChunk& chunk) { on_device_(options(), now, chunk); });
        continue;
      }
      for_each_chunk(piece, kinds_, false, [&](const Chunk& chunk) { rule_(options(), now, chunk); });
    }
  }

  Kinds kinds_;
  ElementwiseRule rule_;
  DeviceRule on_device_;
};

}  // namespace intarsia::optim
