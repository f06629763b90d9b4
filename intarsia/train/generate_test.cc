#include "intarsia/train/generate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace intarsia::train {
namespace {

TEST(ChooseToken, ZeroTemperatureTakesTheMostLikely) {
  EXPECT_EQ(choose_token(at::tensor({0.0F, 3.0F, 1.0F}), 0, 1, 0.99), 1);
}

TEST(ChooseToken, TopPLeavesOutTheTail) {
  const at::Tensor logits = at::log(at::tensor({0.5F, 0.3F, 0.2F}));
  EXPECT_EQ(choose_token(logits, 1, 0.6, 0.999), 1) << "0.5 + 0.3 reach 0.6; the third token is out";
  EXPECT_EQ(choose_token(logits, 1, 1, 0.999), 2);
  EXPECT_EQ(choose_token(logits, 1, 0.4, 0.999), 0);
}

}  // namespace
}  // namespace intarsia::train
