#include "intarsia/optim/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "intarsia/tensor/kernels/adamw.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::optim {

AdamW::AdamW(const plan::RunPlan& plan, std::vector<shard::FlatState>& states)
    : plan_(plan), states_(states), moments_(states.size()) {
  const tensor::MemoryScope scope(tensor::MemoryCategory::kOptimizer);
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    if (!states_[flat].layout->trainable) continue;
    moments_[flat].first = at::zeros({states_[flat].updated.size()}, at::kFloat);
    moments_[flat].second = at::zeros({states_[flat].updated.size()}, at::kFloat);
  }
}

void AdamW::step(double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  ++updates_;
  const plan::OptimizerPlan& options = plan_.optimizer;
  tensor::AdamStep step{.lr = lr,
                        .beta1 = options.beta1,
                        .beta2 = options.beta2,
                        .eps = options.eps,
                        .weight_decay = options.weight_decay,
                        .decoupled_decay = options.decoupled_decay,
                        .bias_correction = options.bias_correction,
                        .update = updates_,
                        .grad_scale = static_cast<float>(grad_scale)};
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    shard::FlatState& state = states_[flat];
    if (!state.layout->trainable) continue;
    float* master = state.master.mutable_data_ptr<float>();
    const float* grad = state.grad.const_data_ptr<float>();
    float* first = moments_[flat].first.mutable_data_ptr<float>();
    float* second = moments_[flat].second.mutable_data_ptr<float>();
    for (const plan::ParamSlot& slot : state.layout->slots) {
      const plan::Range elements = plan::param_range(slot, state.updated);
      if (elements.size() == 0) continue;
      const bool spared = options.no_decay_1d && plan_.model.params[static_cast<std::size_t>(slot.param)].is_vector();
      step.weight_decay = spared ? 0 : options.weight_decay;
      const std::int64_t at = slot.offset + elements.begin - state.updated.begin;
      const std::int64_t grad_at = slot.offset + elements.begin - state.grad_range.begin;
      tensor::adam_update(master + at, grad + grad_at, first + at, second + at, elements.size(), step);
    }
  }
}

}  // namespace intarsia::optim
