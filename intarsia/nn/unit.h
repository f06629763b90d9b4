// Runs a piece of a model as one unit: fires the four UnitEvents around its forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "intarsia/nn/unit_events.h"

namespace intarsia::nn {

using TensorList = std::vector<at::Tensor>;
using UnitForward = std::function<at::Tensor(const at::Tensor& input)>;
using ListForward = std::function<TensorList(const TensorList& inputs)>;

// Runs forward(inputs) as unit `unit`; inputs and outputs may be any number of tensors, undefined ones among them.
// `events` may be null (a model that nobody shards); it must outlive the backward pass. In backward the unit begins
// with the first gradient of an output, and ends when the gradients of all inputs that need one are complete.
// Inside the second run of a recomputed piece (recompute.h) it has no backward of its own.
TensorList run_unit(UnitEvents* events, int unit, const TensorList& inputs, const ListForward& forward);
at::Tensor run_unit(UnitEvents* events, int unit, const at::Tensor& input, const UnitForward& forward);

}  // namespace intarsia::nn
