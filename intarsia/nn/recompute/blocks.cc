#include "intarsia/nn/recompute/blocks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::nn {
namespace {

at::Tensor run_block(const BlockOfModel& block, const at::Tensor& x) {
  return run_unit(block.events, block.unit, x, block.forward);
}

}  // namespace

at::Tensor run_blocks(const plan::RecomputePlan& plan, std::int64_t num_blocks, at::Tensor x,
                      const std::function<BlockOfModel(std::int64_t)>& block) {
  const std::int64_t span = plan.span(num_blocks);
  for (std::int64_t begin = 0; begin < num_blocks; begin += span) {
    std::vector<BlockOfModel> blocks;
    for (std::int64_t i = begin; i < std::min(begin + span, num_blocks); ++i) blocks.push_back(block(i));
    if (blocks.size() == 1) {
      // Inside the unit, so that its parameters are gathered once for the second run and the backward.
      BlockOfModel& one = blocks[0];
      if (plan.recomputes(begin))
        one.forward = recomputed(std::move(one.forward),
                                 {.name = one.name, .keep_products = plan.policy == plan::Recompute::kSelective});
      x = run_block(one, x);
    } else {
      const std::string name = concat(blocks.front().name, " to ", blocks.back().name);
      x = recomputed(
          [blocks = std::move(blocks)](const at::Tensor& input) {
            at::Tensor h = input;
            for (const BlockOfModel& each : blocks) h = run_block(each, h);
            return h;
          },
          {.name = name})(x);
    }
  }
  return x;
}

}  // namespace intarsia::nn
