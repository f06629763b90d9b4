// Which blocks' activations are recomputed in backward.
#pragma once

#include <cstdint>
#include <string>

namespace intarsia::plan {

// kNone keeps all activations. kFull keeps the inputs of blocks and runs each block's forward once more. kEveryK does
// so for every K-th block. kSelective keeps the results of matrix products too and recomputes what lies between them:
// norms, rotations, attention scores, activation functions. Sources: Chen et al. (arXiv 1604.06174); Korthikanti et al.
// (arXiv 2205.05198), section 5. Embedding and head are never recomputed. Losses and gradients are the same bits in
// all.
enum class Recompute { kNone, kFull, kSelective, kEveryK };

struct RecomputePlan {
  Recompute policy = Recompute::kNone;
  std::int64_t every = 1;  // kEveryK: blocks K, 2K, ... counted from 1
  // kFull: how many inputs of blocks are kept at most; consecutive blocks that share one are recomputed together. 0:
  // one for each block. Fewer: less is kept from forward to backward, more blocks' activations live at once in
  // backward.
  std::int64_t checkpoints = 0;

  bool recomputes(std::int64_t block) const {  // counted from 0
    return policy != Recompute::kNone && (policy != Recompute::kEveryK || (block + 1) % every == 0);
  }
  // Consecutive blocks that are recomputed together, of `num_blocks`: num_blocks / checkpoints, rounded up.
  std::int64_t span(std::int64_t num_blocks) const;
};

// For people: "every block", "every 2nd block", ...; empty for kNone.
std::string describe(const RecomputePlan& plan);

}  // namespace intarsia::plan
