// Names, ties, units and values of modules; Unit<M> around their forward.
#include "intarsia/nn/inspect.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "intarsia/base/error.h"

namespace intarsia::nn {
namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({2 * width})))) {}
  at::Tensor forward(const at::Tensor& x) { return norm(up(x)); }
  torch::nn::Linear up;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Block);

// embed is tied with head.weight; two blocks in a list.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : embed(register_module("embed", torch::nn::Embedding(6, 4))),
        blocks(register_module("blocks", torch::nn::ModuleList())) {
    blocks->push_back(Unit<Block>(4));
    blocks->push_back(Unit<Block>(4));
    head = register_module("head", std::make_shared<torch::nn::Module>("Head"));
    head->register_parameter("weight", embed->weight);
    register_parameter("scale", at::ones({3}), false);
  }
  torch::nn::Embedding embed;
  torch::nn::ModuleList blocks;
  std::shared_ptr<torch::nn::Module> head;
};

std::vector<std::string> names_of(const Inspected& inspected, int unit) {
  std::vector<std::string> names;
  for (const int param : inspected.model.units[static_cast<std::size_t>(unit)].params)
    names.push_back(inspected.model.params[static_cast<std::size_t>(param)].name);
  return names;
}

std::vector<std::string> units_of(const Inspected& inspected) {
  std::vector<std::string> names;
  for (const plan::UnitSpec& unit : inspected.model.units) names.push_back(unit.name);
  return names;
}

using Names = std::vector<std::string>;

// A module whose parts are called 0, 1, ...
std::shared_ptr<torch::nn::Module> tree(const std::vector<std::shared_ptr<torch::nn::Module>>& parts) {
  auto module = std::make_shared<torch::nn::Module>("Tree");
  for (std::size_t i = 0; i < parts.size(); ++i) module->register_module(std::to_string(i), parts[i]);
  return module;
}

TEST(Inspect, MarkedModulesAreUnitsAndTheRestIsTheRoots) {
  NetImpl net;
  const Inspected inspected = inspect(net);
  EXPECT_EQ(units_of(inspected), (Names{"root", "blocks.0", "blocks.1"}));
  EXPECT_EQ(names_of(inspected, 0), (Names{"scale", "embed.weight"}));
  EXPECT_EQ(names_of(inspected, 2),
            (Names{"blocks.1.up.weight", "blocks.1.up.bias", "blocks.1.norm.weight", "blocks.1.norm.bias"}));
  const plan::ParamSpec& embed = inspected.model.params[static_cast<std::size_t>(*inspected.model.find("head.weight"))];
  EXPECT_EQ(embed.name, "embed.weight");
  EXPECT_EQ(embed.tied_names, Names{"head.weight"});
  EXPECT_EQ(embed.shape, (std::vector<std::int64_t>{6, 4}));
  EXPECT_TRUE(inspected.model.params[static_cast<std::size_t>(*inspected.model.find("scale"))].frozen);
  EXPECT_FALSE(embed.frozen);
}

TEST(Inspect, PoliciesTakeModulesByTypeSizeAndName) {
  const auto net =
      tree({torch::nn::Linear(4, 8).ptr(), tree({torch::nn::Linear(8, 2).ptr(), torch::nn::Linear(2, 8).ptr()}),
            torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})).ptr()});
  EXPECT_EQ(units_of(inspect(*net, {.policy = wrap_types<torch::nn::LayerNormImpl>()})), (Names{"root", "2"}));
  // 40 elements; 18 and 24: together 42; 16 are left.
  EXPECT_EQ(units_of(inspect(*net, {.policy = wrap_size(40)})), (Names{"root", "0", "1"}));
  EXPECT_EQ(units_of(inspect(*net, {.policy = wrap_size(24)})), (Names{"root", "0", "1.1"})) << "18 are too few";
  EXPECT_EQ(units_of(inspect(*net, {.policy = wrap_names({"1.0", "1"})})), (Names{"root", "1", "1.0"}));
  try {
    inspect(*net, {.policy = wrap_names({"1.7"})});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no part called 1.7"), std::string::npos) << error.what();
  }
}

TEST(Inspect, TensorsOnOneStorageAreTiedAndBelongToTheUnitAroundBoth) {
  const auto net =
      tree({tree({torch::nn::Linear(4, 4).ptr(), torch::nn::Linear(4, 4).ptr()}), torch::nn::Linear(4, 2).ptr()});
  auto parameters = net->named_parameters();
  parameters["0.1.weight"].set_data(parameters["0.0.weight"].detach());
  const Inspected inspected = inspect(*net, {.policy = wrap_names({"0", "0.0", "0.1"})});
  const auto param = static_cast<std::size_t>(*inspected.model.find("0.1.weight"));
  EXPECT_EQ(inspected.model.params[param].name, "0.0.weight");
  EXPECT_EQ(inspected.model.params[param].uses, 2);
  EXPECT_EQ(inspected.leaves[param].size(), 2U);
  EXPECT_EQ(units_of(inspected)[static_cast<std::size_t>(inspected.model.params[param].unit)], "0");
}

TEST(Inspect, WhatCannotBeWrappedIsSaidAtOnceByName) {
  torch::nn::Module net;
  const at::Tensor memory = at::zeros({10});
  net.register_parameter("low", memory.narrow(0, 0, 6));
  net.register_parameter("high", memory.narrow(0, 4, 6));
  net.register_parameter("wide", at::zeros({2}, at::kDouble));
  net.register_parameter("made", at::ones({2}).requires_grad_(true) * 2);
  try {
    inspect(net);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("parameters low, high share a part of their memory"), std::string::npos) << text;
    EXPECT_NE(text.find("parameter wide is Double"), std::string::npos) << text;
    EXPECT_NE(text.find("parameter made is computed"), std::string::npos) << text;
  }
}

TEST(Inspect, DisjointViewsOfOneMemoryAreFine) {
  torch::nn::Module net;
  const at::Tensor memory = at::arange(12, at::kFloat).view({3, 4});
  net.register_parameter("left", memory.narrow(1, 0, 2));
  net.register_parameter("right", memory.narrow(1, 2, 2));
  const Inspected inspected = inspect(net);
  std::vector<float> values(3);
  ModuleWeights(inspected, plan::RandomWeights(1)).read(inspected.model.params[1], {1, 4}, values.data());
  EXPECT_EQ(values, (std::vector<float>{3, 6, 7}));
}

TEST(Inspect, APartThatIsReplacedOrAddedLaterIsNamed) {
  NetImpl net;
  const Inspected inspected = inspect(net);
  check_registered(net, inspected);
  net.replace_module("head", std::make_shared<BlockImpl>(2));
  try {
    check_registered(net, inspected);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("parameter head.up.weight was replaced"), std::string::npos)
        << error.what();
  }
}

// Notes the calls in order.
class Log final : public UnitEvents {
 public:
  void pre_forward(int unit) override { text += " >" + std::to_string(unit); }
  void post_forward(int unit, bool needs_backward) override {
    text += (needs_backward ? " <" : " x") + std::to_string(unit);
  }
  void pre_backward(int unit) override { text += " (" + std::to_string(unit); }
  void post_backward(int unit) override { text += " )" + std::to_string(unit); }
  std::string text;
};

void connect(torch::nn::Module& module, Log& log, int unit) { dynamic_cast<UnitSlot&>(module).connect(&log, unit); }

TEST(Unit, FiresTheEventsAroundAModulesForwardAlsoInASequential) {
  torch::nn::Sequential net(Unit<torch::nn::Linear>(3, 5), Unit<torch::nn::Linear>(5, 2));
  const at::Tensor x = at::rand({4, 3}).requires_grad_(true);
  const at::Tensor plain = net->forward(x);
  Log log;
  connect(*net[0], log, 1);
  connect(*net[1], log, 2);
  const at::Tensor y = net->forward(x);
  EXPECT_TRUE(at::equal(y, plain));
  y.sum().backward();
  EXPECT_EQ(log.text, " >1 <1 >2 <2 (2 )2 (1 )1");
}

struct PairImpl : torch::nn::Module {
  explicit PairImpl(double by) : factor(by) {}
  std::tuple<at::Tensor, std::optional<at::Tensor>> forward(const at::Tensor& x, std::vector<at::Tensor> more,
                                                            bool both) {
    return {x * factor + more[0], both ? std::optional(more[1] * 2) : std::nullopt};
  }
  double factor;
};

TEST(Unit, TakesAndGivesAnyNumberOfTensorsAndOtherValues) {
  Unit<PairImpl> unit(3.0);
  Log log;
  connect(*unit, log, 7);
  const at::Tensor x = at::ones({2}).requires_grad_(true), a = at::ones({2}), b = at::ones({2}).requires_grad_(true);
  const auto [first, second] = unit->forward(x, {a, b}, true);
  EXPECT_EQ(first.sum().item<float>(), 8);
  (first + *second).sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 6);
  EXPECT_EQ(b.grad().sum().item<float>(), 4);
  EXPECT_EQ(log.text, " >7 <7 (7 )7");
  EXPECT_FALSE(std::get<1>(unit->forward(x, {a, b}, false)).has_value());
}

TEST(Unit, EndsItsForwardWhenTheModuleThrows) {
  Log log;
  EXPECT_THROW(call_unit(
                   &log, 3, [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); }, at::ones({1})),
               std::runtime_error);
  EXPECT_EQ(log.text, " >3 x3");
}

}  // namespace
}  // namespace intarsia::nn
