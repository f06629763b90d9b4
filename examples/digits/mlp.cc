// A perceptron on the table of digits. Each layer is a unit: in stage 3 only one of them is whole at a time.
#include <torch/nn/modules/linear.h>

#include "train.h"

struct MlpImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::relu(second(torch::relu(first(x))))); }

  intarsia::Unit<torch::nn::Linear> first = register_module("first", intarsia::Unit<torch::nn::Linear>(64, 96));
  intarsia::Unit<torch::nn::Linear> second = register_module("second", intarsia::Unit<torch::nn::Linear>(96, 96));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(96, 10));  // of the root unit
};
TORCH_MODULE(Mlp);

int main(int argc, char** argv) {
  return digits::run(argc, argv, [](const char* config, const digits::Table& table) {
    torch::manual_seed(7);
    auto engine = intarsia::initialize(Mlp(), config);
    digits::train(engine, table, 160);
  });
}
