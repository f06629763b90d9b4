// Helpers of this folder's tests: updates of a small model whose weights and gradients are formulas.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "intarsia/comm/run_ranks.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/shard/engine.h"

namespace intarsia::optim {

// The shapes and numbers of tests/python/optimizer_values.py, and a frozen parameter and one without elements.
inline plan::ModelSpec formula_model() {
  plan::ModelSpec model;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, int unit) -> plan::ParamSpec& {
    plan::ParamSpec& param = model.params.emplace_back();
    param.name = name;
    param.shape = std::move(shape);
    param.unit = unit;
    return param;
  };
  add("embed.weight", {37, 25}, 0);
  add("block.up", {60, 40}, 1);
  add("block.norm", {60}, 1);
  add("block.down", {40, 75}, 1);
  add("block.frozen", {30, 30}, 1).frozen = true;
  add("block.none", {0, 8}, 1);
  model.units = {{"embed", {0}}, {"block", {1, 2, 3, 4, 5}}};
  return model;
}

inline float formula(int param, std::int64_t index, double phase) {
  return static_cast<float>(std::cos(0.37 * static_cast<double>(index) + param + phase));
}

class FormulaWeights final : public plan::WeightSource {
 public:
  explicit FormulaWeights(const plan::ModelSpec& model) : model_(model) {}
  void read(const plan::ParamSpec& param, plan::Range range, float* out) const override {
    const auto index = static_cast<int>(&param - model_.params.data());
    for (std::int64_t i = range.begin; i < range.end; ++i) out[i - range.begin] = formula(index, i, 0);
  }

 private:
  const plan::ModelSpec& model_;
};

struct UpdateLayout {
  int ranks = 1;
  int stage = 0;
  bool copy = false;
  int shard_ranks = 0;  // of a shard group; 0: all of them
  int hpz_ranks = 0;
};

inline plan::RunPlan update_plan(const plan::OptimizerPlan& optimizer, const UpdateLayout& layout) {
  plan::RunPlan plan;
  plan.model = formula_model();
  plan.flats = plan::layout_units(plan.model, layout.ranks);
  plan.ranks = layout.ranks;
  plan.stage = layout.stage;
  plan.placement = plan::make_placement(
      {.stage = layout.stage, .ranks = layout.ranks, .shard_ranks = layout.shard_ranks, .hpz_ranks = layout.hpz_ranks});
  plan.optimizer = optimizer;
  return plan;
}

// The gradients of one update, times 1 / `scale`.
inline void fill_gradients(std::vector<shard::FlatState>& states, std::int64_t update, float scale = 1) {
  for (shard::FlatState& state : states) {
    if (!state.layout->trainable) continue;
    for (const plan::ParamSlot& slot : state.layout->slots) {
      const plan::Range elements = plan::param_range(slot, state.grad_range);
      float* grad = state.grad.mutable_data_ptr<float>() + slot.offset - state.grad_range.begin;
      for (std::int64_t i = elements.begin; i < elements.end; ++i)
        grad[i] = static_cast<float>(0.1 * std::cos(0.37 * static_cast<double>(i) + slot.param +
                                                    1.7 * static_cast<double>(update) + 0.5)) /
                  scale;
    }
  }
}

// The parameters after five updates at the base rate, from `scale`d gradients; the same on all ranks of the layout.
inline std::vector<at::Tensor> five_updates(const plan::OptimizerPlan& options, const UpdateLayout& layout,
                                            float scale = 1, const std::function<void(Optimizer&)>& look = {}) {
  const plan::RunPlan plan = update_plan(options, layout);
  const FormulaWeights weights(plan.model);
  std::vector<at::Tensor> result(plan.model.params.size());
  comm::run_grid(plan.grid(),
                 [&](const comm::DataAxes& axes) {
                   shard::Engine engine(plan, axes, weights);
                   const auto optimizer = make_optimizer(plan, engine.states(), axes);
                   for (std::int64_t update = 1; update <= 5; ++update) {
                     fill_gradients(engine.states(), update, scale);
                     optimizer->step(options.lr, scale);
                     engine.publish();
                   }
                   if (look) look(*optimizer);
                   for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
                     const at::Tensor whole = engine.gather(flat, shard::Engine::What::kMaster);
                     if (axes.world.rank() != 0) continue;
                     for (const plan::ParamSlot& slot : engine.states()[flat].layout->slots)
                       result[static_cast<std::size_t>(slot.param)] = whole.narrow(0, slot.offset, slot.numel).clone();
                   }
                 },
                 {.force_copy = layout.copy});
  return result;
}

}  // namespace intarsia::optim
