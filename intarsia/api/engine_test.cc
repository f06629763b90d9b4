// What a program meets: losses and their weights, looking at parameters, checkpoints, and what is refused.
#include "intarsia/api/engine.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <torch/nn/modules/container/sequential.h>

#include <filesystem>

#include "intarsia/api/meta.h"
#include "intarsia/api/testing_net.h"
#include "intarsia/base/error.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::api {
namespace {

const char* const kAdam = R"("optimizer": {"type": "Adam", "params": {"lr": 0.01}}, "gradient_clipping": 0)";

Config config_of(int stage, int accumulation = 1) {
  return Config::from_text(concat(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": )",
                                  accumulation, R"(, "zero_optimization": {"stage": )", stage, "}, ", kAdam, "}"));
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

#define EXPECT_SAYS(action, text)                          \
  do {                                                     \
    const std::string said = message_of([&] { action; });  \
    EXPECT_NE(said.find(text), std::string::npos) << said; \
  } while (false)

void micro_step(Engine<OddNetImpl>& engine, std::int64_t index) {
  const Batch batch = batch_of(index);
  engine.backward(mean_loss(engine.forward(batch.ids), batch.labels));
  engine.step();
}

// One weight, so that gradients are known.
struct ScaleImpl : torch::nn::Module {
  ScaleImpl() : w(register_parameter("w", at::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& x) { return (w * x).sum(); }
  at::Tensor w;
};
TORCH_MODULE(Scale);

// behaviours, kind 2: 3 targets with mean 2 and 1 target with loss 6 make 3; the gradient is weighted alike.
TEST(Losses, SumsAreWeightedByTargetsAndMeansCountAlike) {
  for (const int stage : {0, 1, 2, 3})
    comm::run_ranks(2, [&](comm::Communicator& axis) {
      auto engine = initialize(Scale(), config_of(stage), {.ranks = &axis});
      const double sum = 6;
      const std::int64_t targets = axis.rank() == 0 ? 3 : 1;
      engine.backward(engine.forward(at::full({1}, sum)) + sum, targets);
      EXPECT_TRUE(engine.step());
      EXPECT_EQ(engine.last_step().loss, 3);
      EXPECT_EQ(engine.last_step().grad_norm, 3);
      const double mean = axis.rank() == 0 ? 2 : 6;
      engine.backward(engine.forward(at::full({1}, mean)));
      engine.step();
      EXPECT_EQ(engine.last_step().grad_norm, 4);
    });
}

// behaviours, kind 2: 2 ranks x 2 micro-steps, micro-gradients 1, 1 and 3, 3: 2.
TEST(Losses, AreAveragedOverMicroStepsAndRanks) {
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    auto engine = initialize(Scale(), config_of(3, 2), {.ranks = &axis});
    for (int micro = 0; micro < 2; ++micro) {
      EXPECT_EQ(engine.is_window_end(), micro == 1);
      engine.backward(engine.forward(at::full({1}, axis.rank() == 0 ? 1 : 3)));
      EXPECT_EQ(engine.step(), micro == 1);
    }
    EXPECT_EQ(engine.last_step().grad_norm, 2);
    EXPECT_EQ(engine.steps(), 1);
  });
}

TEST(Losses, CallsOutOfOrderAreSaid) {
  auto engine = initialize(Scale(), config_of(0, 2));
  EXPECT_SAYS(engine.step(), "step() without a backward()");
  engine.backward(engine.forward(at::ones({1})), 1);
  EXPECT_SAYS(engine.backward(engine.forward(at::ones({1})), 1), "second backward()");
  engine.step();
  EXPECT_SAYS(engine.backward(engine.forward(at::ones({1}))), "in one window");
  EXPECT_SAYS(engine.save("nowhere"), "inside a window (1 of 2");
}

TEST(Parameters, AreReadableInsideTheirUnitsOnlyAndAScopeMakesThemWhole) {
  for (const bool copy : {false, true})
    comm::run_ranks(2,
                    [&](comm::Communicator& axis) {
                      OddNet net = seeded_net(1);
                      const at::Tensor nine = net->nine->weight, before = nine.detach().clone();
                      auto engine = initialize(net, config_of(3), {.ranks = &axis});
                      EXPECT_SAYS((void)nine.sum(), "parameter nine.weight was read while it was sharded");
                      {
                        const auto whole = engine.whole();
                        EXPECT_TRUE(at::equal(nine.detach(), before));
                        EXPECT_TRUE(at::equal(net->head.detach(), net->embed->weight.detach()));
                      }
                      EXPECT_SAYS((void)nine.sum(), "parameter nine.weight was read while it was sharded");
                      EXPECT_TRUE(at::equal(engine.gather("nine.weight"), before));
                      const auto one = engine.whole("nine");
                      EXPECT_TRUE(at::equal(nine.detach(), before));
                      EXPECT_SAYS((void)net->down->weight.sum(), "down.weight");
                      axis.barrier({"", "looked"});
                    },
                    {.force_copy = copy});
}

// In every stage: where nothing is sharded a read goes through, but its gradient would be lost.
TEST(Parameters, UsedOutsideTheirUnitAreNamed) {
  for (const int stage : {0, 1, 2, 3})
    comm::run_ranks(2, [&](comm::Communicator& axis) {
      OddNet net = seeded_net(1);
      auto engine = initialize(net, config_of(stage), {.ranks = &axis});
      EXPECT_SAYS(engine.backward(engine.forward(batch_of(0).ids).sum() + net->nine->weight.sum()), "nine.weight");
      axis.barrier({"", "said"});
    });
}

TEST(Parameters, ReplacedAfterWrappingAreNamedAtTheNextForward) {
  OddNet net = seeded_net(1);
  auto engine = initialize(net, config_of(0));
  micro_step(engine, 0);
  net->nine->weight.set_data(at::zeros({9, kWidth}));
  EXPECT_SAYS(engine.forward(batch_of(0).ids), "parameter nine.weight was replaced");
  OddNet other = seeded_net(1);
  auto second = initialize(other, config_of(0));
  other->replace_module("still", torch::nn::Linear(kWidth, kWidth));
  EXPECT_SAYS(second.forward(batch_of(0).ids), "parameter still.weight was replaced");
}

TEST(Units, OfAPolicyRunByTheProgram) {
  for (const int ranks : {1, 2})
    comm::run_ranks(ranks, [&](comm::Communicator& axis) {
      torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Linear(4, 2));
      const at::Tensor x = at::ones({1, 3}), expected = net->forward(x);
      Options options{.units = nn::wrap_types<torch::nn::LinearImpl>()};
      options.ranks = &axis;
      auto engine = initialize(net, config_of(3), options);
      const auto first = net->ptr<torch::nn::LinearImpl>(0), second = net->ptr<torch::nn::LinearImpl>(1);
      const at::Tensor h = engine.run(
          *first, [&](const at::Tensor& in) { return first->forward(in); }, x);
      const at::Tensor y = engine.run(
          "1", [&](const at::Tensor& in) { return second->forward(in); }, h);
      if (axis.rank() == 0) {
        EXPECT_TRUE(at::equal(y, expected));
      }
      engine.backward(y.sum());
      engine.step();
      EXPECT_GT(engine.last_step().grad_norm, 0);
      if (ranks == 2) {
        EXPECT_SAYS(engine.forward(x), "is whole only inside its unit 0");
      }
      EXPECT_SAYS(engine.run(
                      "2", [](const at::Tensor& in) { return in; }, x),
                  "2 is no unit; the units are root, 0, 1");
      axis.barrier({"", "done"});
    });
}

// behaviours, kind 6: a module called once on rank 0 and three times on rank 1.
TEST(Units, CalledUnequallyOftenAreNamedWithCountsOnAllRanks) {
  std::mutex mutex;
  std::string said;
  EXPECT_THROW(comm::run_ranks(2,
                               [&](comm::Communicator& axis) {
                                 OddNet net = seeded_net(1);
                                 auto engine = initialize(net, config_of(3), {.ranks = &axis});
                                 try {
                                   at::Tensor h = at::ones({2, kWidth});
                                   for (int i = 0; i < (axis.rank() == 0 ? 1 : 3); ++i) h = net->down(net->nine(h));
                                   engine.backward(h.sum());
                                   engine.step();
                                 } catch (const std::exception& error) {
                                   const std::lock_guard lock(mutex);
                                   said += concat(error.what(), "\n");
                                   throw;
                                 }
                               },
                               {.force_copy = true, .timeout_seconds = 10}),
               Error);
  EXPECT_NE(said.find("nine"), std::string::npos) << said;
  EXPECT_NE(said.find("1 on rank 0, 2 on rank 1"), std::string::npos) << said;
}

// Ranks use different parts of one unit.
struct ExpertsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, std::int64_t expert) { return expert == 0 ? first(x) : second(x); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 3));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 3));
};
struct RoutedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, std::int64_t expert) { return experts->forward(x, expert); }
  nn::Unit<ExpertsImpl> experts = register_module("experts", nn::Unit<ExpertsImpl>());
};
TORCH_MODULE(Routed);

// behaviours, kind 6: 2 experts, rank 0 uses only expert 0 and rank 1 only expert 1.
TEST(Units, WhosePartsDifferByRankFinishWithTheRightGradients) {
  const at::Tensor x = at::arange(8, at::kFloat).view({2, 4});
  Routed plain;
  for (const std::int64_t expert : {0, 1}) (plain->forward(x, expert).sum() / 2).backward();
  double square_sum = 0;
  for (const at::Tensor& parameter : plain->parameters()) square_sum += parameter.grad().square().sum().item<double>();
  for (const bool copy : {false, true})
    comm::run_ranks(2,
                    [&](comm::Communicator& axis) {
                      auto engine = initialize(Routed(), config_of(3), {.ranks = &axis});
                      engine.backward(engine.forward(x, std::int64_t{axis.rank()}).sum());
                      engine.step();
                      EXPECT_NEAR(engine.last_step().grad_norm, std::sqrt(square_sum), 1e-5);
                    },
                    {.force_copy = copy});
}

// behaviours, kind 5: 16M frozen and 0.1M trainable in one unit.
TEST(Memory, FrozenParametersCostNoGradients) {
  tensor::install_memory_meter();
  for (const int ranks : {1, 2})
    comm::run_ranks(ranks, [&](comm::Communicator& axis) {
      tensor::set_memory_rank(axis.rank());
      const auto before = tensor::read_memory(axis.rank());
      auto net = std::make_shared<torch::nn::Module>("Net");
      net->register_parameter("frozen", at::ones({16'000'000}), false);
      net->register_parameter("trained", at::ones({100'000}));
      ModuleEngine engine(net, config_of(ranks == 1 ? 0 : 3), {.ranks = &axis});
      const auto after = tensor::read_memory(axis.rank());
      using tensor::MemoryCategory;
      const std::int64_t bucket = 4 * 102'400;
      EXPECT_LE(after[MemoryCategory::kGradients] - before[MemoryCategory::kGradients], 410'000);
      EXPECT_LE(after[MemoryCategory::kReduce] - before[MemoryCategory::kReduce], bucket);
      EXPECT_LE(after[MemoryCategory::kOptimizer] - before[MemoryCategory::kOptimizer], 2 * 410'000);
      axis.barrier({"", "measured"});
    });
}

TEST(Meta, ModulesWithoutMemoryAreFilledAlikeInAnyLayout) {
  std::vector<at::Tensor> first;
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 3})
      comm::run_ranks(ranks, [&](comm::Communicator& axis) {
        OddNet net = on_meta([] { return OddNet(); });
        EXPECT_TRUE(net->nine->weight.is_meta());
        auto engine = initialize(net, config_of(stage), {.ranks = &axis});
        std::vector<at::Tensor> values;
        for (const char* name : {"embed.weight", "nine.weight", "mix.norm.weight", "unused"})
          values.push_back(engine.gather(name));
        EXPECT_NEAR(values[1].std().item<double>(), 1 / std::sqrt(3.0 * kWidth), 0.1);
        EXPECT_TRUE(values[2].eq(1).all().item<bool>());
        if (axis.rank() == 0) {
          if (first.empty()) first = values;
          for (std::size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(at::equal(values[i], first[i])) << i;
        }
        axis.barrier({"", "compared"});
        micro_step(engine, axis.rank());  // tied and frozen parameters are what they were
        EXPECT_FALSE(net->still->weight.requires_grad());
      });
}

// The resumed run is that which would have been, on another number of ranks and in another stage.
TEST(Checkpoints, GoOnInAnotherLayout) {
  std::string dir = (std::filesystem::temp_directory_path() / "intarsia-api-XXXXXX").string();
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  double expected = 0;
  const auto steps = [](auto& engine, std::int64_t begin, std::int64_t end) {
    const std::int64_t each = 4 / engine.ranks();
    for (std::int64_t step = begin; step < end; ++step)
      for (std::int64_t micro = 0; micro < each; ++micro)
        micro_step(engine, 4 * step + micro * engine.ranks() + engine.rank());
  };
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    auto engine = initialize(seeded_net(1), config_of(3, 2), {.ranks = &axis});
    EXPECT_FALSE(engine.load(dir + "/checkpoints").has_value());
    steps(engine, 0, 2);
    engine.save(dir + "/checkpoints", 8);
    steps(engine, 2, 4);
    if (axis.rank() == 0) expected = engine.last_step().loss;
  });
  auto engine = initialize(seeded_net(9), config_of(0, 4));
  const auto loaded = engine.load(dir + "/checkpoints");
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->steps, 2);
  EXPECT_EQ(loaded->data_position, 8);
  steps(engine, 2, 4);
  EXPECT_NEAR(engine.last_step().loss, expected, 1e-6 * expected);
  std::filesystem::remove_all(dir);
}

// behaviours, kind 3: bf16, a forward in evaluation, steps, save, load elsewhere: the outputs are bit-equal.
TEST(Checkpoints, GiveTheSameBitsOfOutputsIn16Bit) {
  std::string dir = (std::filesystem::temp_directory_path() / "intarsia-api-XXXXXX").string();
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    const Config config = config_of(3).set("bf16.enabled", "true");
    const auto outputs = [](auto& engine) {
      const at::NoGradGuard no_grad;
      return engine.forward(batch_of(3).ids);
    };
    at::Tensor before;
    {
      auto engine = initialize(seeded_net(1), config, {.ranks = &axis});
      (void)outputs(engine);
      for (int step = 0; step < 5; ++step) micro_step(engine, 2 * step + axis.rank());
      engine.save(dir + "/checkpoints");
      before = outputs(engine);
    }
    auto engine = initialize(seeded_net(2), config, {.ranks = &axis});
    EXPECT_FALSE(at::equal(outputs(engine), before));
    ASSERT_TRUE(engine.load(dir + "/checkpoints").has_value());
    EXPECT_TRUE(at::equal(outputs(engine), before));
  });
  std::filesystem::remove_all(dir);
}

TEST(Configs, SettingsOfTheTrainerAndMistakesAreSaidByName) {
  EXPECT_SAYS(initialize(Scale(), config_of(0).set("intarsia.data", "[\"x\"]")), "intarsia.data: is a setting of");
  EXPECT_SAYS(initialize(Scale(), config_of(0).set("intarsia.ranks", "3")), "intarsia.ranks is 3, but");
  EXPECT_SAYS(initialize(Scale(), config_of(0).set("gradient_clipp1ng", "1")), "gradient_clipping");
  EXPECT_SAYS(initialize(Scale(), "no/such.json"), "no/such.json");
}

}  // namespace
}  // namespace intarsia::api
