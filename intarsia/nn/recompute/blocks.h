// The blocks of a model one after another, recomputed as the plan says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "intarsia/nn/recompute/recompute.h"
#include "intarsia/nn/unit.h"
#include "intarsia/plan/recompute_plan.h"

namespace intarsia::nn {

struct BlockOfModel {
  UnitEvents* events = nullptr;
  int unit = 0;
  std::string name;  // for messages
  UnitForward forward;
};

// x through block(0), block(1), ..., block(num_blocks - 1), each one unit. What their forwards capture must
// live until backward has run. Blocks that are recomputed together (RecomputePlan::span) enter their units once more
// during backward.
at::Tensor run_blocks(const plan::RecomputePlan& plan, std::int64_t num_blocks, at::Tensor x,
                      const std::function<BlockOfModel(std::int64_t)>& block);

}  // namespace intarsia::nn
