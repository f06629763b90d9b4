#include "intarsia/nn/unit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace intarsia::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Identity whose backward runs when the gradient of a unit's input is complete. Autograd runs nodes made later first,
// so by then every gradient of the unit's parameters has been accumulated.
class PostBackward : public torch::autograd::Function<PostBackward> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, std::int64_t events, std::int64_t unit) {
    context->saved_data["events"] = events;
    context->saved_data["unit"] = unit;
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): saved_data holds integers only
    auto* events = reinterpret_cast<UnitEvents*>(context->saved_data["events"].toInt());
    events->post_backward(static_cast<int>(context->saved_data["unit"].toInt()));
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

// Keeps what one recomputed entry needs for as long as its node of the graph lives.
struct Entry final : torch::CustomClassHolder {
  UnitEvents* events = nullptr;
  int unit = 0;
  UnitForward forward;
};

// One entry whose activations are dropped after forward. `anchor` requires grad, so that backward comes although the
// parameters are no inputs of this node.
class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<Entry>& entry) {
    context->save_for_backward({input});
    context->saved_data["entry"] = c10::IValue::make_capsule(entry);
    if (entry->events != nullptr) entry->events->pre_forward(entry->unit);
    at::Tensor output = entry->forward(input);
    if (entry->events != nullptr) entry->events->post_forward(entry->unit, true);
    return output;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto entry = c10::static_intrusive_pointer_cast<Entry>(context->saved_data["entry"].toCapsule());
    const at::Tensor saved = context->get_saved_variables()[0];
    if (entry->events != nullptr) entry->events->pre_backward(entry->unit);
    at::Tensor input = saved.detach();
    input.requires_grad_(saved.requires_grad());
    {
      const at::AutoGradMode grad_mode(true);
      const at::Tensor output = entry->forward(input);
      torch::autograd::backward({output}, {gradients[0]});
    }
    if (entry->events != nullptr) entry->events->post_backward(entry->unit);
    return {input.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor run_unit(UnitEvents* events, int unit, const at::Tensor& input, const UnitForward& forward) {
  if (events == nullptr) return forward(input);
  const bool input_needs_grad = at::GradMode::is_enabled() && input.requires_grad();
  events->pre_forward(unit);
  at::Tensor output =
      forward(input_needs_grad ? PostBackward::apply(input, reinterpret_cast<std::int64_t>(events), std::int64_t{unit})
                               : input);
  const bool needs_backward = output.requires_grad();
  if (needs_backward) output.register_hook([events, unit](const at::Tensor&) { events->pre_backward(unit); });
  events->post_forward(unit, needs_backward);
  return output;
}

at::Tensor run_unit_recomputed(UnitEvents* events, int unit, const at::Tensor& input, const UnitForward& forward) {
  if (!at::GradMode::is_enabled()) return run_unit(events, unit, input, forward);
  const at::Tensor anchor = at::empty({0}, input.options().dtype(at::kFloat)).requires_grad_(true);
  auto entry = c10::make_intrusive<Entry>();
  entry->events = events;
  entry->unit = unit;
  entry->forward = forward;
  return Recomputed::apply(input, anchor, entry);
}

}  // namespace intarsia::nn
