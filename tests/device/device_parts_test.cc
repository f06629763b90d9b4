// The parts that treat a device in their own way: communication, norms, Adam, leaves of a module, recomputation.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "intarsia/comm/reduce.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/comm/tree_of_tensors.h"
#include "intarsia/nn/parameters.h"
#include "intarsia/nn/recompute/recompute.h"
#include "intarsia/tensor/adamw_tensors.h"
#include "intarsia/tensor/block_sums.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/kernels/square_sum.h"
#include "on_test_device.h"

namespace intarsia {
namespace {

c10::Device device() { return tensor::device_of(DeviceKind::kTest); }

// Runs one operation on device tensors; each rank's numbers are its own.
TEST(DeviceComm, EveryOperationWorksOnDeviceTensors) {
  comm::run_ranks(3,
                  [](comm::Communicator& axis) {
                    const auto filled = [&](std::int64_t n, double value) { return at::full({n}, value, device()); };
                    const auto values = [](const at::Tensor& tensor) {
                      const at::Tensor host = tensor.cpu();
                      return std::vector<float>(host.const_data_ptr<float>(),
                                                host.const_data_ptr<float>() + host.numel());
                    };
                    using Floats = std::vector<float>;
                    const int me = axis.rank();
                    const at::Tensor three = filled(3, 0), one = filled(1, me + 1);
                    axis.all_gather(three, one, {"", "gather"})->wait();
                    EXPECT_EQ(values(three), (Floats{1, 2, 3}));
                    const at::Tensor mine = three.narrow(0, me, 1);  // a piece of the input
                    axis.reduce_scatter(mine, three, {"", "reduce"})->wait();
                    EXPECT_EQ(values(mine), (Floats{3.0F * static_cast<float>(me + 1)}));
                    axis.all_reduce(one, comm::ReduceOp::kMax, {"", "max"})->wait();
                    EXPECT_EQ(values(one), (Floats{3}));
                    const at::Tensor from_one = filled(2, me);
                    axis.broadcast(from_one, 1, {"", "broadcast"})->wait();
                    EXPECT_EQ(values(from_one), (Floats{1, 1}));
                    const at::Tensor out = filled(3, 0), in = filled(3, me);
                    axis.all_to_all(out, in, {"", "exchange"})->wait();
                    EXPECT_EQ(values(out), (Floats{0, 1, 2}));
                    if (me == 0) axis.send(filled(2, 7), 2, {"", "send"})->wait();
                    if (me == 2) {
                      const at::Tensor got = filled(2, 0);
                      axis.recv(got, 0, {"", "send"})->wait();
                      EXPECT_EQ(values(got), (Floats{7, 7}));
                    }
                    EXPECT_EQ(axis.allocate_shared(64), nullptr) << "parameters of a device are not mapped";
                    EXPECT_EQ(axis.backend_name(), "threads, through host memory");
                  },
                  {.device = DeviceKind::kTest});
}

TEST(DeviceComm, ReducedRowsHaveTheBitsOfReduceInOrder) {
  for (const std::int64_t ranks : {1, 2, 3, 5, 8, 12})
    for (const auto op : {comm::ReduceOp::kSum, comm::ReduceOp::kMax})
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor rows = at::randn({ranks, 100}).to(type);
        std::vector<const void*> sources;
        for (std::int64_t rank = 0; rank < ranks; ++rank) sources.push_back(rows[rank].const_data_ptr());
        const at::Tensor want = at::empty({100}, type);
        comm::reduce_in_order(want.mutable_data_ptr(), sources, 100, type, op);
        EXPECT_TRUE(at::equal(comm::reduce_rows_in_order(rows.to(device()), op).cpu(), want)) << ranks << " ranks";
      }
}

TEST(DeviceSums, HaveTheBitsOfTheHost) {
  const at::Tensor values = at::randn({5 * 1024});
  const at::Tensor there = at::empty({5}, at::kDouble), here = at::empty({5}, at::kDouble);
  tensor::block_square_sums(values.to(device()), there);
  tensor::block_square_sums(values, here);
  EXPECT_TRUE(at::equal(there, here));
  EXPECT_EQ(here[3].item<double>(), tensor::square_sum(values.const_data_ptr<float>() + 3 * 1024, 1024));
  EXPECT_EQ(tensor::square_sum_of(values.to(device())), tensor::square_sum_of(values));
  values[17] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(tensor::square_sum_of(values.to(device()))));
}

TEST(DeviceAdam, HasTheBitsOfTheHost) {
  for (const bool decoupled : {true, false}) {
    const at::Tensor start = at::randn({1000});
    std::vector<at::Tensor> host{start.clone(), at::zeros({1000}), at::zeros({1000})}, there;
    for (const at::Tensor& tensor : host) there.push_back(tensor.to(device()));
    for (std::int64_t update = 1; update <= 3; ++update) {
      const at::Tensor grad = at::randn({1000});
      const tensor::AdamStep step{
          .lr = 0.01, .weight_decay = 0.1, .decoupled_decay = decoupled, .update = update, .grad_scale = 0.3F};
      tensor::adam_update(host[0].mutable_data_ptr<float>(), grad.const_data_ptr<float>(),
                          host[1].mutable_data_ptr<float>(), host[2].mutable_data_ptr<float>(), 1000, step);
      tensor::adam_update(there[0], grad.to(device()), there[1], there[2], step);
    }
    EXPECT_FALSE(at::equal(host[0], start));
    for (std::size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(at::equal(there[i].cpu(), host[i])) << i;
  }
}

// A module's leaves begin in host memory and are handed over to the engine's device.
TEST(DeviceParameters, LeavesOfTheHostMoveToTheDevice) {
  plan::ModelSpec model;
  model.units.push_back({.name = "unit", .params = {0}});
  model.params.push_back({.name = "weight", .shape = {2, 3}});
  at::Tensor leaf = at::ones({2, 3}).requires_grad_();
  const at::Tensor handle = leaf;  // what a module holds
  nn::Parameters parameters(model, DType::kF32, {{leaf}}, device());
  parameters.detach(0);
  EXPECT_EQ(handle.device(), device());
  try {
    (void)handle.sum();
    FAIL() << "a read of a parameter without memory went through";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("weight"), std::string::npos) << error.what();
  }
  const at::Tensor window = at::full({8}, 2.0, device());
  parameters.attach(0, window.narrow(0, 1, 6));
  EXPECT_EQ(handle.sum().item<float>(), 12);
  torch::autograd::backward({(handle * handle).sum()}, {});
  EXPECT_EQ(handle.grad().sum().item<float>(), 24);
}

TEST(DeviceRecompute, DrawsTheDevicesRandomNumbersAgain) {
  const auto gradient = [](bool again) {
    at::Generator generator = at::globalContext().defaultGenerator(device());
    generator.set_current_seed(7);
    const at::Tensor x = at::ones({64}, device()).requires_grad_();
    const nn::UnitForward piece = [](const at::Tensor& in) {
      const at::Generator own = at::globalContext().defaultGenerator(in.device());
      return (in * at::rand(in.sizes(), own, in.options().requires_grad(false))).exp();
    };
    const nn::UnitForward used = again ? nn::recomputed(piece, {.name = "piece"}) : piece;
    torch::autograd::backward({used(used(x)).sum()}, {});
    return x.grad().cpu();
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

}  // namespace
}  // namespace intarsia
