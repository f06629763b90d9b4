// The kernels of SGD, Lion, Adagrad and of the small ranges that the other optimizers are made of.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "intarsia/tensor/kernels/adagrad.h"
#include "intarsia/tensor/kernels/lion.h"
#include "intarsia/tensor/kernels/ranges.h"
#include "intarsia/tensor/kernels/sgd.h"

namespace intarsia::tensor {
namespace {

struct Arrays {
  std::vector<float> param, grad, first, second;
};

Arrays example(int count) {
  Arrays a{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count, 0.1F),
           std::vector<float>(count, 0.2F)};
  for (int i = 0; i < count; ++i) {
    a.param[i] = std::cos(static_cast<float>(i));
    a.grad[i] = std::sin(static_cast<float>(3 * i));
  }
  return a;
}

using Kernel = std::function<void(float* param, const float* grad, float* first, float* second, std::int64_t numel)>;

const std::vector<std::pair<const char*, Kernel>>& kernels() {
  static const std::vector<std::pair<const char*, Kernel>> kAll = {
      {"sgd",
       [](float* p, const float* g, float* m, float*, std::int64_t n) {
         sgd_update(p, g, m, n,
                    {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .grad_scale = 0.3F});
       }},
      {"plain sgd", [](float* p, const float* g, float*, float*,
                       std::int64_t n) { sgd_update(p, g, nullptr, n, {.lr = 0.01, .weight_decay = 0.1}); }},
      {"lion", [](float* p, const float* g, float* m, float*,
                  std::int64_t n) { lion_update(p, g, m, n, {.lr = 0.01, .weight_decay = 0.1, .grad_scale = 0.3F}); }},
      {"adagrad",
       [](float* p, const float* g, float* m, float*, std::int64_t n) {
         adagrad_update(p, g, m, n, {.lr = 0.01, .weight_decay = 0.1, .grad_scale = 0.3F});
       }},
      {"moments",
       [](float*, const float* g, float* m, float* v, std::int64_t n) { moments_range(g, 0.3F, m, 0.9, v, 0.99, n); }},
      {"lamb direction", [](float* p, const float* g, float* m, float* v,
                            std::int64_t n) { lamb_direction(g, m, v, 1e-6F, 0.1F, p, n); }},
      {"variance",
       [](float*, const float* g, float* m, float*, std::int64_t n) { variance_range(g, 0.3F, m, 0.7, n); }},
      {"over root",
       [](float* p, const float* g, float* m, float*, std::int64_t n) { over_root(g, 0.3F, m, 1e-6F, p, n); }},
      {"mix", [](float* p, const float* g, float*, float*, std::int64_t n) { mix_range(p, 0.9F, g, 0.3F, n); }},
      {"scale", [](float* p, const float* g, float*, float*, std::int64_t n) { scale_range(p, g, 0.3F, n); }}};
  return kAll;
}

// Shard borders may cut anywhere: a vector body and a scalar tail must agree.
TEST(OptimizerKernels, EveryCutOfTheRangeGivesTheSameBits) {
  constexpr int kCount = 257;
  for (const auto& [name, kernel] : kernels()) {
    Arrays whole = example(kCount);
    kernel(whole.param.data(), whole.grad.data(), whole.first.data(), whole.second.data(), kCount);
    for (const int cut : {1, 7, 16, 100}) {
      Arrays part = example(kCount);
      kernel(part.param.data(), part.grad.data(), part.first.data(), part.second.data(), cut);
      kernel(part.param.data() + cut, part.grad.data() + cut, part.first.data() + cut, part.second.data() + cut,
             kCount - cut);
      EXPECT_EQ(part.param, whole.param) << name << " cut at " << cut;
      EXPECT_EQ(part.first, whole.first) << name << " cut at " << cut;
      EXPECT_EQ(part.second, whole.second) << name << " cut at " << cut;
    }
  }
}

TEST(Sgd, TheBufferBeginsAsTheGradientAndDampeningCountsFromTheSecondUpdateOn) {
  float param = 1, buffer = 0;
  const float grad = 0.5F;
  sgd_update(&param, &grad, &buffer, 1, {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .first = true});
  EXPECT_FLOAT_EQ(buffer, 0.5F);
  EXPECT_FLOAT_EQ(param, 0.95F);
  sgd_update(&param, &grad, &buffer, 1, {.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  EXPECT_FLOAT_EQ(buffer, 0.9F * 0.5F + 0.5F * 0.5F);
  EXPECT_FLOAT_EQ(param, 0.95F - 0.07F);
}

TEST(Lion, MovesByTheSignAndNotAtAllWhereItIsZero) {
  std::vector<float> param = {1, 1, 1}, moment = {0, 0, 0};
  const std::vector<float> grad = {1e-3F, -5, 0};
  lion_update(param.data(), grad.data(), moment.data(), 3, {.lr = 0.1, .beta2 = 0.5});
  EXPECT_EQ(param, (std::vector<float>{0.9F, 1.1F, 1}));
  EXPECT_FLOAT_EQ(moment[1], -2.5F);
}

TEST(Ranges, NarrowingRoundsToNearestEven) {
  const std::vector<float> wide = {1.0F + 1.0F / 256, 1.0F + 3.0F / 256, -1.0F - 1.0F / 128, 3.5F};
  std::vector<c10::BFloat16> narrow(4);
  std::vector<float> back(4);
  narrow_range(wide.data(), narrow.data(), 4);
  widen_range(narrow.data(), back.data(), 4);
  EXPECT_EQ(back, (std::vector<float>{1.0F, 1.0F + 1.0F / 64, -1.0F - 1.0F / 128, 3.5F}));
}

}  // namespace
}  // namespace intarsia::tensor
