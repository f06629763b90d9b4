// Recomputed activations: a piece of a model whose forward is run again in backward instead of keeping what it saved.
//
// Note: the two runs. The first run is the forward pass: each tensor that an operation saves is replaced by a number,
// so its memory goes as soon as the piece no longer uses it; only the piece's inputs are kept. The graph is the
// ordinary one. In backward, the first node that asks for a saved tensor starts the second run: the same forward on the
// same inputs, whose saved tensors are handed out by number; it stops when the last of them is there, and its own graph
// is thrown away. So autograd walks the same nodes in the same order on the same values as without recomputation, and
// losses and gradients are the same bits.
// The second run sees what the first saw: autocast and all else that ATen holds for a thread, and the numbers of
// torch's default CPU generator, whose state is put back afterwards. It may run before or after other pieces, so the
// forward must not depend on anything else that changes, and must not change its inputs. Source: Chen et al., "Training
// deep nets with sublinear memory cost" (arXiv 1604.06174); keeping products: Korthikanti et al., "Reducing activation
// recomputation in large transformer models" (arXiv 2205.05198), section 5.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/nn/unit.h"

namespace intarsia::nn {

struct RecomputeOptions {
  std::string name;  // of the piece, for messages
  // Keep the results of matrix products and convolutions (aten mm, addmm, convolution) from the first run, so that the
  // second runs only what is cheap: norms, activations, rotations, attention scores (batched products are not kept).
  // Memory: those results, whoever else saves them shares them.
  bool keep_products = false;
};

// `forward`, recomputed. What it captures must live until backward has run. In passes without gradients, and inside
// another recomputed piece, it is just `forward`. Collectives: those of `forward` happen again in backward, on all
// ranks alike. Errors: kData, naming the piece, when the second run saves tensors of other number, shape or dtype, or
// when an input was changed in place; whatever `forward` throws reaches the caller of backward.
ListForward recomputed(ListForward forward, RecomputeOptions options);
UnitForward recomputed(UnitForward forward, RecomputeOptions options);

// Whether the calling thread is inside a second run.
bool in_second_run();

// Second runs of the calling thread so far, and the time they took.
struct RecomputeTime {
  std::int64_t runs = 0;
  double seconds = 0;
};
RecomputeTime recompute_time();

}  // namespace intarsia::nn
