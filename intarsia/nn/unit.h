// Runs a piece of a model as one unit: fires the four UnitEvents around its forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "intarsia/nn/unit_events.h"

namespace intarsia::nn {

using UnitForward = std::function<at::Tensor(const at::Tensor& input)>;

// Runs forward(input) as unit `unit`. `events` may be null (a model that nobody shards). `events` must outlive the
// backward pass.
at::Tensor run_unit(UnitEvents* events, int unit, const at::Tensor& input, const UnitForward& forward);

// The same, keeping only `input`: the forward is run again in backward. Bit-equal to run_unit, since the same
// operations see the same values. Source: Chen et al., "Training deep nets with sublinear memory cost" (arXiv
// 1604.06174). Memory: the activations inside the unit live only during its own backward.
at::Tensor run_unit_recomputed(UnitEvents* events, int unit, const at::Tensor& input, const UnitForward& forward);

}  // namespace intarsia::nn
