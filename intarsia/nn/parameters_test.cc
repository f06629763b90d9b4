// Leaves of a module keep their identity while their memory comes and goes.
#include "intarsia/nn/parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "intarsia/base/error.h"

namespace intarsia::nn {
namespace {

plan::ModelSpec two_by_three() {
  plan::ModelSpec model;
  model.units = {{.name = "block", .params = {0}}};
  model.params = {{.name = "w", .shape = {2, 3}}};
  return model;
}

at::Tensor counting(const at::TensorOptions& options = {}) {
  return at::arange(6, at::kFloat).view({2, 3}).to(options.dtype(), false, true);
}

TEST(Parameters, HandlesAndAliasesOfAModuleFollowTheWindows) {
  const at::Tensor held = at::zeros({2, 3}).requires_grad_(true), alias = held.detach();
  Parameters parameters(two_by_three(), DType::kF32, {{held}});
  EXPECT_EQ(held.sum().item<float>(), 0) << "values stay until the first detach";
  parameters.detach(0);
  EXPECT_THROW((void)held.sum(), c10::Error);
  const at::Tensor buffer = at::arange(8, at::kFloat);
  parameters.attach(0, buffer.narrow(0, 1, 6));
  EXPECT_EQ(held[1][2].item<float>(), 6);
  EXPECT_EQ(alias[1][2].item<float>(), 6);
  EXPECT_TRUE(held.requires_grad() && held.is_leaf());
  parameters.detach(0);
}

TEST(Parameters, LeavesOfAnotherLayoutDtypeOrDeviceGetAStorageOfTheirOwn) {
  const at::Tensor whole = at::zeros({7});
  for (at::Tensor leaf : {at::zeros({3, 2}).t(), whole.narrow(0, 1, 6).view({2, 3}), at::zeros({2, 3}, at::kDouble),
                          at::empty({2, 3}, at::TensorOptions().device(at::kMeta))}) {
    leaf.requires_grad_(true);
    Parameters parameters(two_by_three(), DType::kBF16, {{leaf}});
    parameters.detach(0);
    const at::Tensor buffer = counting(at::kBFloat16).flatten();
    parameters.attach(0, buffer);
    EXPECT_TRUE(at::equal(leaf.detach(), counting(at::kBFloat16)));
    (leaf * 2).sum().backward();
    EXPECT_EQ(leaf.grad().scalar_type(), at::kBFloat16);
    parameters.detach(0);
  }
}

TEST(Parameters, AReplacedParameterIsNamed) {
  at::Tensor held = at::zeros({2, 3});
  Parameters parameters(two_by_three(), DType::kF32, {{held}});
  parameters.detach(0);
  parameters.check_not_replaced(0);
  held.set_data(at::ones({2, 3}));
  try {
    parameters.check_not_replaced(0);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("parameter w was replaced"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace intarsia::nn
