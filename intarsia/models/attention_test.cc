#include "intarsia/models/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace intarsia::models {
namespace {

// Softmax over the scores of what each query sees, one by one.
at::Tensor by_definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t window,
                         const at::Tensor& positions) {
  const std::int64_t batch = q.size(0), length = q.size(2), groups = q.size(1) / k.size(1);
  at::Tensor hidden = at::ones({batch, length, length}, at::kBool);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0, begin = 0; i < length; ++i) {
      if (positions.defined() && positions[b][i].item<std::int64_t>() == 0) begin = i;
      const std::int64_t first = window > 0 ? std::max(begin, i - window + 1) : begin;
      hidden[b][i].narrow(0, first, i - first + 1).fill_(false);
    }
  const at::Tensor scores = at::matmul(q, k.repeat_interleave(groups, 1).transpose(2, 3)) / std::sqrt(q.size(3));
  const at::Tensor seen = scores.masked_fill(hidden.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return at::matmul(seen.softmax(-1), v.repeat_interleave(groups, 1)).transpose(1, 2).reshape({batch, length, -1});
}

void expect_definition(std::int64_t length, std::int64_t window, const at::Tensor& positions) {
  const auto heads = [&](std::int64_t number) { return at::randn({2, number, length, 8}).requires_grad_(true); };
  const at::Tensor q = heads(4), k = heads(2), v = heads(2);
  const at::Tensor mine = attend(q, k, v, attention_mask(length, window, positions, at::kFloat));
  const at::Tensor wanted = by_definition(q, k, v, window, positions);
  EXPECT_TRUE(at::allclose(mine, wanted, 1e-4, 1e-5)) << length << " " << window;
  const at::Tensor weights = at::randn_like(wanted);
  const auto gradients = [&](const at::Tensor& out) {
    for (const at::Tensor& x : {q, k, v}) x.mutable_grad() = at::Tensor();
    (out * weights).sum().backward();
    return std::vector<at::Tensor>{q.grad().clone(), k.grad().clone(), v.grad().clone()};
  };
  const auto a = gradients(mine), b = gradients(wanted);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-4, 1e-5)) << length << " " << window;
}

TEST(Attention, SeesWhatTheWindowLeaves) {
  at::manual_seed(1);
  for (const std::int64_t window : {0, 1, 5, 19, 20, 30}) expect_definition(20, window, {});
}

// Keys come in blocks; a block of which a query sees nothing must not spoil its row.
TEST(Attention, LongSequencesWithShortWindows) {
  at::manual_seed(2);
  expect_definition(1100, 3, {});
}

TEST(Attention, StaysWithinDocuments) {
  at::manual_seed(3);
  const at::Tensor positions =
      at::tensor({0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, at::kLong).view({2, 10});
  expect_definition(10, 0, positions);
  expect_definition(10, 3, positions);
}

TEST(Attention, WithoutNeedThereIsNoMask) {
  EXPECT_FALSE(attention_mask(8, 0, {}, at::kFloat).defined());
  EXPECT_FALSE(attention_mask(8, 8, {}, at::kFloat).defined());
  EXPECT_TRUE(attention_mask(8, 7, {}, at::kFloat).defined());
}

}  // namespace
}  // namespace intarsia::models
