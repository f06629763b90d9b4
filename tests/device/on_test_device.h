// What every test of whole runs on the test device begins with.
#pragma once

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "intarsia/nn/recompute/saved_tensor_scope.h"
#include "intarsia/tensor/kernels/in_use.h"
#include "test_device.h"

namespace intarsia::test_device {

// The device is there, and a model is the same sequence of operations on it and on the CPU, which otherwise has ATen's
// fused kernel for attention and ours for other pieces: then whole runs give the same bits.
class OnTestDevice : public testing::Environment {
 public:
  void SetUp() override {
    install();
    nn::prepare_saved_tensors();  // tests run a backward without an engine of ours first
    at::globalContext().setSDPUseFlash(false);
  }

 private:
  tensor::PlainOperations plain_;
};

inline testing::Environment* const on_test_device = testing::AddGlobalTestEnvironment(new OnTestDevice);

}  // namespace intarsia::test_device
