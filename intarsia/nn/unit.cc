#include "intarsia/nn/unit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "intarsia/nn/recompute/recompute.h"

namespace intarsia::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One run of a unit whose backward will come.
struct Entry final : torch::CustomClassHolder {
  Entry(UnitEvents* heard_by, int number) : events(heard_by), unit(number) {}
  void begin_backward() {
    if (in_backward) return;
    in_backward = true;
    events->pre_backward(unit);
  }
  void end_backward() {
    in_backward = false;
    events->post_backward(unit);
  }
  UnitEvents* events;
  int unit;
  bool in_backward = false;
};

// Identity whose backward runs when the gradients of a unit's inputs are complete. Autograd runs nodes made later
// first, so by then every gradient of the unit's parameters has been accumulated.
class PostBackward : public torch::autograd::Function<PostBackward> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Entry>& entry) {
    context->set_materialize_grads(false);
    context->saved_data["entry"] = c10::IValue::make_capsule(entry);
    variable_list outputs;
    outputs.reserve(inputs.size());
    for (const at::Tensor& input : inputs) outputs.push_back(input.view_as(input));
    return outputs;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    c10::static_intrusive_pointer_cast<Entry>(context->saved_data["entry"].toCapsule())->end_backward();
    gradients.emplace_back();  // of the entry
    return gradients;
  }
};

// The same inputs, those that need a gradient behind one PostBackward.
TensorList watch(const TensorList& inputs, const c10::intrusive_ptr<Entry>& entry) {
  const auto needs_grad = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  TensorList watched;
  for (const at::Tensor& input : inputs)
    if (needs_grad(input)) watched.push_back(input);
  if (!at::GradMode::is_enabled() || watched.empty()) return inputs;
  watched = PostBackward::apply(at::TensorList(watched), entry);
  TensorList all = inputs;
  std::size_t next = 0;
  for (at::Tensor& input : all)
    if (needs_grad(input)) input = watched[next++];
  return all;
}

// Tells of the forward's end even when it is left by an exception.
class ForwardPass {
 public:
  ForwardPass(UnitEvents& events, int unit) : events_(events), unit_(unit) { events_.pre_forward(unit); }
  ~ForwardPass() {
    if (!ended_) events_.post_forward(unit_, false);
  }
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
  void end(bool needs_backward) {
    ended_ = true;
    events_.post_forward(unit_, needs_backward);
  }

 private:
  UnitEvents& events_;
  int unit_;
  bool ended_ = false;
};

}  // namespace

TensorList run_unit(UnitEvents* events, int unit, const TensorList& inputs, const ListForward& forward) {
  if (events == nullptr) return forward(inputs);
  ForwardPass pass(*events, unit);
  if (in_second_run()) {
    // The graph that is made here is thrown away: the first run's entry has the backward.
    TensorList outputs = forward(inputs);
    pass.end(false);
    return outputs;
  }
  const auto entry = c10::make_intrusive<Entry>(events, unit);
  TensorList outputs = forward(watch(inputs, entry));
  bool needs_backward = false;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    needs_backward = true;
    output.register_hook([entry](const at::Tensor&) { entry->begin_backward(); });
  }
  pass.end(needs_backward);
  return outputs;
}

at::Tensor run_unit(UnitEvents* events, int unit, const at::Tensor& input, const UnitForward& forward) {
  return run_unit(events, unit, TensorList{input},
                  [&forward](const TensorList& inputs) { return TensorList{forward(inputs[0])}; })[0];
}

}  // namespace intarsia::nn
