// The engine on toy models whose gradients are known, in every placement.
#include "intarsia/shard/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <mutex>

#include "intarsia/base/error.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/nn/unit.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::shard {
namespace {

struct Placed {
  int ranks;
  int stage;
  bool copy;
};
void PrintTo(const Placed& p, std::ostream* out) {
  *out << p.ranks << " ranks, stage " << p.stage << (p.copy ? ", copied" : ", mapped");
}

// One unit: two trainable vectors that lie in different shards on 2 ranks, one that is never used, one without
// elements, one frozen.
plan::RunPlan toy_plan(const Placed& placed, DType dtype = DType::kF32, int uses = 1) {
  plan::RunPlan plan;
  plan.model.units = {{.name = "toy", .params = {0, 1, 2, 3, 4}}};
  plan.model.params = {{.name = "a", .shape = {1024}, .init = plan::Init::kOnes, .uses = uses},
                       {.name = "b", .shape = {1024}, .init = plan::Init::kOnes},
                       {.name = "unused", .shape = {5, 3}},
                       {.name = "empty", .shape = {0, 8}},
                       {.name = "frozen", .shape = {100}, .init = plan::Init::kOnes, .frozen = true}};
  plan.ranks = placed.ranks;
  plan.stage = placed.stage;
  plan.placement = plan::placement_of_stage(placed.stage);
  plan.flats = plan::layout_units(plan.model, placed.ranks);
  plan.compute_dtype = dtype;
  plan.seq_len = 1;  // loss_divisor 1
  return plan;
}

void run(const Placed& placed, const plan::RunPlan& plan, const std::function<void(Engine&)>& body) {
  comm::run_ranks(placed.ranks,
                  [&](comm::Communicator& axis) {
                    Engine engine(plan, axis, plan::RandomWeights(1));
                    body(engine);
                  },
                  {.force_copy = placed.copy, .timeout_seconds = 20});
}

// A micro-step whose gradients are `a` and `b` in every element of the two vectors.
void micro_step(Engine& engine, double a, double b) {
  const nn::Parameters& p = engine.parameters();
  engine.backward(nn::run_unit(&engine, 0, at::ones({1}), [&](const at::Tensor& x) {
    return (x * (p.leaf(0) * a + p.leaf(1) * b + p.leaf(4).sum() * 0)).sum();
  }));
}

class Engines : public testing::TestWithParam<Placed> {};

// behaviours, kind 2: 2 ranks x 2 micro-steps, micro-gradients 1, 1 and 3, 3: mean 2.
TEST_P(Engines, AveragesOverMicroStepsAndRanks) {
  const Placed placed = GetParam();
  const plan::RunPlan plan = toy_plan(placed);
  run(placed, plan, [&](Engine& engine) {
    for (int window = 0; window < 2; ++window) {  // the second window starts afresh
      engine.start_window();
      const double gradient = engine.world().rank() % 2 == 0 ? 1 : 3;
      for (int micro = 0; micro < 2; ++micro) micro_step(engine, gradient, 0);
      engine.finish_window();
      const at::Tensor sum = engine.gather(0, Engine::What::kGradient);
      const double mean = placed.ranks == 1 ? 1 : 2;
      EXPECT_TRUE(sum.narrow(0, 0, 1024).div(2.0 * placed.ranks).eq(mean).all().item<bool>());
      EXPECT_TRUE(sum.narrow(0, 1024, sum.numel() - 1024).eq(0).all().item<bool>()) << "b, unused, empty, padding";
    }
  });
}

// behaviours, kind 1: elements 3 and 4 in different shards: norm 5, the same on all ranks, in every placement.
TEST_P(Engines, NormCountsEachElementOnce) {
  const Placed placed = GetParam();
  const plan::RunPlan plan = toy_plan(placed);
  run(placed, plan, [&](Engine& engine) {
    engine.start_window();
    const nn::Parameters& p = engine.parameters();
    engine.backward(nn::run_unit(&engine, 0, at::ones({1}), [&](const at::Tensor& x) {
      return (x * (p.leaf(0)[0] * 3 + p.leaf(1)[1023] * 4)).sum();
    }));
    engine.finish_window();
    EXPECT_EQ(engine.gradient_square_sum(), 25.0 * placed.ranks * placed.ranks);
  });
}

TEST_P(Engines, PublishesWhatMastersSay) {
  const Placed placed = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const plan::RunPlan plan = toy_plan(placed, dtype);
    run(placed, plan, [&](Engine& engine) {
      engine.world().barrier({"", "before the update"});
      for (FlatState& state : engine.states())
        if (state.layout->trainable) state.master.fill_(1.5);
      engine.publish();
      const at::NoGradGuard no_grad;
      const nn::Parameters& p = engine.parameters();
      const at::Tensor sum = nn::run_unit(&engine, 0, at::ones({1}), [&](const at::Tensor&) {
        return p.leaf(0).to(at::kFloat).sum() + p.leaf(4).to(at::kFloat).sum();
      });
      EXPECT_EQ(sum.item<float>(), 1.5F * 1024 + 100) << "frozen parameters stay";
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, Engines,
                         testing::Values(Placed{1, 0, false}, Placed{1, 3, false}, Placed{2, 0, false},
                                         Placed{2, 1, false}, Placed{2, 2, false}, Placed{2, 3, false},
                                         Placed{2, 3, true}, Placed{4, 1, true}, Placed{4, 2, true},
                                         Placed{4, 3, true}));

TEST(Engine, ReadingAShardedParameterOutsideItsUnitNamesIt) {
  for (const bool copy : {false, true}) {
    const Placed placed{2, 3, copy};
    const plan::RunPlan plan = toy_plan(placed);
    run(placed, plan, [&](Engine& engine) {
      for (const char* when : {"before its unit ran", "after it"}) {
        try {
          (void)engine.parameters().leaf(1).sum();
          ADD_FAILURE() << "the read went through " << when;
        } catch (const c10::Error& error) {
          EXPECT_NE(std::string(error.what()).find("parameter b was read while it was sharded"), std::string::npos);
        }
        engine.start_window();
        micro_step(engine, 1, 1);
        engine.finish_window();
      }
    });
  }
}

TEST(Engine, AGradientFromOutsideTheUnitNamesTheParameterWhereItIsWholeForEver) {
  for (const int stage : {0, 1, 2}) {
    const Placed placed{2, stage, false};
    const plan::RunPlan plan = toy_plan(placed);
    run(placed, plan, [&](Engine& engine) {
      engine.start_window();
      try {
        engine.backward(engine.parameters().leaf(1).sum());
        ADD_FAILURE() << "the gradient was taken";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("parameter b was used outside its unit toy"), std::string::npos);
      }
    });
  }
}

TEST(Engine, UsesOfOneParameterAreSummedInFp32) {
  for (const int stage : {0, 3}) {
    const Placed placed{2, stage, true};
    const plan::RunPlan plan = toy_plan(placed, DType::kBF16, 2);
    run(placed, plan, [&](Engine& engine) {
      engine.start_window();
      const nn::Parameters& p = engine.parameters();
      const at::Tensor x = nn::run_unit(&engine, 0, at::ones({1}, at::kBFloat16),
                                        [&](const at::Tensor& one) { return one * p.leaf(0, 0).sum() * 256; });
      engine.backward(nn::run_unit(&engine, 0, x, [&](const at::Tensor& y) { return y.sum() + p.leaf(0, 1).sum(); }));
      engine.finish_window();
      const at::Tensor sum = engine.gather(0, Engine::What::kGradient);
      EXPECT_EQ(sum[0].item<float>(), 2 * 257.0F) << "257 is no bf16 number";
    });
  }
}

// behaviours, kind 6: a unit entered once on rank 0 and three times on rank 1 is an error on both, with its name.
TEST(Engine, UnequalEntriesOfAUnitAreAnErrorOnAllRanks) {
  const Placed placed{2, 3, true};
  const plan::RunPlan plan = toy_plan(placed);
  std::mutex mutex;
  std::vector<std::string> messages;
  EXPECT_THROW(comm::run_ranks(2,
                               [&](comm::Communicator& axis) {
                                 Engine engine(plan, axis, plan::RandomWeights(1));
                                 try {
                                   engine.start_window();
                                   for (int i = 0; i < (axis.rank() == 0 ? 1 : 3); ++i) micro_step(engine, 1, 1);
                                   engine.finish_window();
                                   (void)engine.gradient_square_sum();
                                 } catch (const std::exception& error) {
                                   const std::lock_guard lock(mutex);
                                   messages.emplace_back(error.what());
                                   throw;
                                 }
                               },
                               {.force_copy = true, .timeout_seconds = 5}),
               Error);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_NE((messages[0] + messages[1]).find("toy"), std::string::npos) << messages[0] << "\n" << messages[1];
}

// behaviours, kind 5: frozen parameters cost no gradient and no optimizer memory.
TEST(Engine, FrozenParametersHaveNoGradientMemory) {
  tensor::install_memory_meter();
  plan::RunPlan plan = toy_plan({1, 0, false});
  plan.model.params[4].shape = {1 << 20};
  plan.flats = plan::layout_units(plan.model, 1);
  const std::int64_t before = tensor::read_memory(0)[tensor::MemoryCategory::kGradients];
  comm::run_ranks(1, [&](comm::Communicator& axis) {
    Engine engine(plan, axis, plan::RandomWeights(1));
    EXPECT_LT(tensor::read_memory(0)[tensor::MemoryCategory::kGradients] - before, 3 * 1024 * 4 + 1);
    EXPECT_FALSE(engine.states()[1].grad.defined());
  });
}

// What a pass without backward had gathered ahead is of the weights before the update.
TEST(Engine, AGatherAheadOfAnUpdateIsForgotten) {
  plan::RunPlan plan;
  plan.model.units = {{.name = "first", .params = {0}}, {.name = "second", .params = {1}}};
  plan.model.params = {{.name = "a", .shape = {1024}, .init = plan::Init::kOnes},
                       {.name = "b", .shape = {1024}, .unit = 1, .init = plan::Init::kOnes}};
  plan.ranks = 2;
  plan.stage = 3;
  plan.placement = plan::placement_of_stage(3);
  plan.flats = plan::layout_units(plan.model, 2);
  plan.seq_len = 1;
  plan.overlap = true;
  run({2, 3, true}, plan, [](Engine& engine) {
    const nn::Parameters& p = engine.parameters();
    const auto unit = [&](int index, const at::Tensor& x) {
      return nn::run_unit(&engine, index, x, [&](const at::Tensor& y) { return (y * p.leaf(index)).sum(); });
    };
    engine.start_window();
    engine.backward(unit(1, unit(0, at::ones({1}))));  // the order is known now
    engine.finish_window();
    const at::NoGradGuard no_grad;
    unit(0, at::ones({1}));  // the second unit is gathered ahead
    engine.world().barrier({"", "before the update"});
    for (FlatState& state : engine.states()) state.master.fill_(3);
    engine.publish();
    EXPECT_EQ(unit(1, at::ones({1})).item<float>(), 3 * 1024);
  });
}

}  // namespace
}  // namespace intarsia::shard
