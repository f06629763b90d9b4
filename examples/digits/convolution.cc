// A convolutional network on the digits as images. The module knows nothing of Intarsia: a policy by size makes its
// units, and the program runs them as such.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include <functional>

#include "train.h"

namespace nn = torch::nn;

// Where a part of the network runs: plain, or as a unit of the engine once there is one.
using Runner = std::function<torch::Tensor(nn::Sequential& part, const torch::Tensor& x)>;

struct ConvNetImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& pixels) {
    const torch::Tensor images = pixels.view({-1, 1, 8, 8});
    return run(head, run(second, run(first, images)).flatten(1));
  }

  nn::Sequential first =
      register_module("first", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU()));
  nn::Sequential second = register_module("second", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)),
                                                                   nn::GroupNorm(4, 32), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential head =
      register_module("head", nn::Sequential(nn::Linear(32 * 4 * 4, 64), nn::ReLU(), nn::Linear(64, 10)));
  Runner run = [](nn::Sequential& part, const torch::Tensor& x) { return part->forward(x); };
};
TORCH_MODULE(ConvNet);

int main(int argc, char** argv) {
  return digits::run(argc, argv, [](const char* config, const digits::Table& table) {
    torch::manual_seed(7);
    ConvNet net;
    auto engine = intarsia::initialize(net, config, {.units = intarsia::wrap_names({"first", "second", "head"})});
    net->run = [&engine](nn::Sequential& part, const torch::Tensor& x) {
      return engine.run(
          part, [&part](const torch::Tensor& in) { return part->forward(in); }, x);
    };
    digits::train(engine, table, 120);
  });
}
