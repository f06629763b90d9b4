// The test device itself: what it guards, and that it computes what the CPU does.
#include "test_device.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "guarded_memory.h"
#include "intarsia/base/error.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::test_device {
namespace {

class TestDevice : public testing::Test {
 protected:
  void SetUp() override {
    install();
    tensor::use_device(DeviceKind::kTest, 0);
  }
  static c10::Device device() { return tensor::device_of(DeviceKind::kTest); }
};
using TestDeviceDeathTest = TestDevice;

TEST_F(TestDeviceDeathTest, AHostReadOfItsMemoryFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor tensor = at::ones({4}, device());
  EXPECT_EXIT(
      {
        volatile float value = *static_cast<const float*>(tensor.const_data_ptr());
        (void)value;
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(std::memset(tensor.mutable_data_ptr(), 0, 4), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(tensor.sum().item<float>(), 4) << "through the device it is there";
}

TEST_F(TestDevice, CopiesAndViewsKeepValues) {
  const at::Tensor host = at::arange(24, at::kFloat).view({4, 6});
  const at::Tensor there = host.to(device());
  EXPECT_TRUE(is_guarded(there.const_data_ptr()));
  EXPECT_TRUE(at::equal(there.cpu(), host));
  EXPECT_TRUE(at::equal(there.t().narrow(0, 1, 3).cpu(), host.t().narrow(0, 1, 3)));
  EXPECT_TRUE(at::equal(there.to(at::kBFloat16).cpu(), host.to(at::kBFloat16)));
  there.select(1, 2).fill_(-1);
  EXPECT_EQ(there.cpu()[3][2].item<float>(), -1);
}

TEST_F(TestDevice, ComputesTheBitsOfTheCpu) {
  const at::Tensor a = at::randn({17, 33}), b = at::randn({33, 9});
  const at::Tensor there_a = a.to(device()), there_b = b.to(device());
  EXPECT_TRUE(at::equal(at::mm(there_a, there_b).cpu(), at::mm(a, b)));
  EXPECT_TRUE(at::equal(at::softmax(there_a, -1).cpu(), at::softmax(a, -1)));
  EXPECT_TRUE(at::equal(at::silu(there_a.t()).cpu(), at::silu(a.t())));
  EXPECT_EQ(there_a.sum().item<float>(), a.sum().item<float>());
  EXPECT_TRUE(at::equal(at::arange(7, at::TensorOptions().device(device())).cpu(), at::arange(7)));
}

TEST_F(TestDevice, TensorsOfTheHostAndOfTheDeviceDoNotMix) {
  const at::Tensor there = at::ones({4}, device());
  EXPECT_THROW(at::add(there, at::ones({4})), c10::Error);
  EXPECT_THROW(at::add(there, at::ones({4}, c10::Device(c10::DeviceType::PrivateUse1, 1))), c10::Error);
  EXPECT_EQ((there + 1).sum().item<float>(), 8) << "numbers may";
}

TEST_F(TestDevice, MemoryThatNobodyWroteIsNaN) { EXPECT_TRUE(at::isnan(at::empty({3}, device())).all().item<bool>()); }

TEST_F(TestDevice, ItsBackwardRunsOnAThreadOfItsOwn) {
  const at::Tensor x = at::ones({4}, device()).requires_grad_();
  std::thread::id seen;
  const at::Tensor y = x * 3;
  y.register_hook([&](const at::Tensor&) { seen = std::this_thread::get_id(); });
  torch::autograd::backward({y.sum()}, {});
  EXPECT_EQ(x.grad().cpu().sum().item<float>(), 12);
  EXPECT_NE(seen, std::this_thread::get_id());
  EXPECT_NE(seen, std::thread::id());
}

TEST_F(TestDevice, AnErrorOfItsThreadReachesTheCallerAsItIs) {
  const at::Tensor x = at::ones({4}, device()).requires_grad_();
  const at::Tensor y = x * 3;
  y.register_hook([](const at::Tensor&) { fail(ErrorKind::kMemory, "no room on the device"); });
  try {
    torch::autograd::backward({y.sum()}, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kMemory);
    EXPECT_STREQ(error.what(), "no room on the device");
  }
}

TEST_F(TestDevice, ItsMemoryIsMetered) {
  tensor::set_memory_rank(5);
  const tensor::MemoryScope scope(tensor::MemoryCategory::kGradients);
  const auto before = tensor::read_memory(5)[tensor::MemoryCategory::kGradients];
  {
    const at::Tensor tensor = at::zeros({1000}, device());
    EXPECT_EQ(tensor::read_memory(5)[tensor::MemoryCategory::kGradients] - before, 4000);
  }
  EXPECT_EQ(tensor::read_memory(5)[tensor::MemoryCategory::kGradients], before);
}

TEST_F(TestDevice, ThereIsNoneForARankTooMany) {
  EXPECT_THROW(tensor::use_device(DeviceKind::kTest, kNumDevices), Error);
}

}  // namespace
}  // namespace intarsia::test_device
