// Dropout whose choice depends on the run's seed, the place in the model and the element alone, so that it is the same
// on any number of ranks, in any stage and when activations are computed again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace intarsia::models {

// `x` with the share `probability` of its elements zero and the others divided by 1 - probability; the backward pass
// does the same to the gradient, and draws again instead of keeping what was drawn.
// Element (b, t, i) is dropped by the Philox number of (key, places[b], t, i).
// Shapes: x [B, T, in] of any float type, on any device; places: B numbers, each of a sample in the run's order of
// data. Memory: the result, and meanwhile a byte an element. Source: Srivastava et al., "Dropout" (JMLR 15, 2014),
// section 10, in the form that scales while training.
at::Tensor drop_out(const at::Tensor& x, std::uint64_t key, double probability, std::span<const std::int64_t> places);

}  // namespace intarsia::models
