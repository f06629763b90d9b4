#include "intarsia/shard/tree_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "intarsia/comm/reduce.h"

namespace intarsia::shard {
namespace {

at::Tensor leaf(std::int64_t index) {
  return at::arange(1, 1025, at::kFloat).mul_(0.1F + 7.3F * static_cast<float>(index)).cos_();
}

at::Tensor sum_of_steps(std::int64_t first, std::int64_t steps) {
  at::Tensor result = at::zeros({1024});
  TreeSum tree(result, steps);
  for (std::int64_t step = 0; step < steps; ++step) {
    tree.place(step).copy_(leaf(first + step));
    tree.settle(step);
  }
  return result;
}

TEST(TreeSum, OneValueIsItself) { EXPECT_TRUE(at::equal(sum_of_steps(3, 1), leaf(3))); }

TEST(TreeSum, RanksThatShareTheStepsGetTheSameBits) {
  const at::Tensor whole = sum_of_steps(0, 16);
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    std::vector<at::Tensor> parts;
    std::vector<const void*> sources;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(sum_of_steps(rank * 16 / ranks, 16 / ranks));
      sources.push_back(parts.back().data_ptr());
    }
    at::Tensor total = at::empty({1024});
    comm::reduce_in_order(total.data_ptr(), sources, 1024, at::kFloat, comm::ReduceOp::kSum);
    EXPECT_TRUE(at::equal(total, whole)) << ranks;
  }
}

TEST(TreeSum, IsNotTheSumInSequence) {
  at::Tensor sequence = at::zeros({1024});
  for (std::int64_t step = 0; step < 16; ++step) sequence.add_(leaf(step));
  EXPECT_FALSE(at::equal(sequence, sum_of_steps(0, 16)));
  EXPECT_TRUE(at::allclose(sequence, sum_of_steps(0, 16), 1e-5, 1e-5));
}

}  // namespace
}  // namespace intarsia::shard
