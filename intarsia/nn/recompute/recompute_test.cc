// A recomputed piece against the same piece that keeps everything: the same bits, less memory.
#include "intarsia/nn/recompute/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::nn {
namespace {

at::Tensor parameter(std::vector<std::int64_t> shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed)).requires_grad_(true);
}

at::Tensor drop_half(const at::Tensor& x) { return at::dropout(x, 0.5, true); }

void seed_default_generator(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

// Loss and gradients of `leaves` when `forward` gives the loss.
std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& leaves, const std::function<at::Tensor()>& forward) {
  const at::Tensor loss = forward();
  torch::autograd::backward({loss}, {});
  std::vector<at::Tensor> all = {loss.detach()};
  for (const at::Tensor& leaf : leaves) {
    all.push_back(leaf.grad());
    leaf.mutable_grad().reset();
  }
  return all;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    EXPECT_TRUE(!a[i].defined() || at::equal(a[i], b[i])) << i;
  }
}

// behaviours, kind 10.
TEST(Recompute, DropoutRepeatsItsMaskAndLeavesTheGeneratorWhereItWas) {
  const at::Tensor x = parameter({4, 32}, 1), w = parameter({32, 32}, 2);
  const UnitForward block = [&](const at::Tensor& in) { return at::mm(drop_half(at::gelu(at::mm(in, w))), w); };
  const auto run = [&](const UnitForward& forward) {
    seed_default_generator(7);
    std::vector<at::Tensor> all = gradients({x, w}, [&] { return forward(forward(x)).square().sum(); });
    all.push_back(at::rand({3}));  // what comes after draws the same, too
    return all;
  };
  const auto kept = run(block);
  for (const bool products : {false, true})
    expect_equal(kept, run(recomputed(block, {.name = "block", .keep_products = products})));
}

// behaviours, kind 10: budgets 0, 0.5 and 1.
TEST(Recompute, SomeOfThreeDropoutLayersGiveTheSameBits) {
  const at::Tensor x = parameter({4, 32}, 1), w = parameter({32, 32}, 2);
  const UnitForward layer = [&](const at::Tensor& in) { return drop_half(at::mm(in, w)); };
  const auto run = [&](std::vector<bool> which) {
    seed_default_generator(7);
    return gradients({x, w}, [&] {
      at::Tensor h = x;
      for (const bool again : which) h = again ? recomputed(layer, {.name = "layer"})(h) : layer(h);
      return h.square().sum();
    });
  };
  const auto kept = run({false, false, false});
  expect_equal(kept, run({false, true, false}));
  expect_equal(kept, run({true, false, true}));
  expect_equal(kept, run({true, true, true}));
}

// behaviours, kind 10.
TEST(Recompute, GradientsOfABlockThatAddsNoiseAgreeWithFiniteDifferences) {
  const at::Tensor x = parameter({8}, 3).detach().to(at::kDouble).requires_grad_(true);
  const UnitForward noisy = recomputed(
      [](const at::Tensor& in) { return (in + at::randn_like(in)).pow(3) * at::rand_like(in); }, {.name = "noisy"});
  const auto loss = [&](const at::Tensor& in) {
    seed_default_generator(5);
    return noisy(in).sum();
  };
  const at::Tensor gradient = gradients({x}, [&] { return loss(x); })[1];
  const at::NoGradGuard no_grad;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor step = at::zeros_like(x);
    step[i] = 1e-5;
    const double slope = ((loss(x + step) - loss(x - step)) / 2e-5).item<double>();
    EXPECT_NEAR(gradient[i].item<double>(), slope, 1e-3) << i;
  }
}

TEST(Recompute, SeveralInputsAndOutputsSomeUndefinedSomeWithoutGradient) {
  const at::Tensor a = parameter({6, 5}, 1), b = parameter({5}, 2);
  const at::Tensor index = at::tensor({2, 0, 1}, at::kLong);
  const ListForward forward = [](const TensorList& in) {
    EXPECT_FALSE(in[2].defined());
    const at::Tensor rows = in[0].index_select(0, in[1]).sigmoid();
    return TensorList{rows * in[3], in[0].exp(), {}, in[1] + 1};
  };
  const auto run = [&](const ListForward& piece) {
    return gradients({a, b}, [&] {
      const TensorList out = piece({a, index, {}, b});
      EXPECT_FALSE(out[2].defined());
      return out[0].sum() + out[1].square().sum() + out[3].sum();
    });
  };
  expect_equal(run(forward), run(recomputed(forward, {.name = "piece"})));
}

TEST(Recompute, RunsOncePerBackwardAndStopsAtTheLastSavedTensor) {
  const at::Tensor x = parameter({4, 8}, 1), w = parameter({8, 8}, 2);
  int begun = 0, ended = 0;
  const UnitForward piece = recomputed(
      [&](const at::Tensor& in) {
        ++begun;
        const at::Tensor out = at::mm(at::mm(in, w).tanh(), w);
        ++ended;
        return out;
      },
      {.name = "piece"});
  const RecomputeTime before = recompute_time();
  gradients({x, w}, [&] { return piece(piece(x)).sum(); });
  EXPECT_EQ(begun, 4);
  EXPECT_EQ(ended, 2);  // the last product saves its inputs before it is computed
  EXPECT_EQ(recompute_time().runs - before.runs, 2);
  EXPECT_GT(recompute_time().seconds, before.seconds);
}

TEST(Recompute, KeptProductsAreNotComputedAgainUnlessChangedInPlace) {
  const at::Tensor x = parameter({2, 4, 8}, 1), w = parameter({8, 8}, 2);
  const auto run = [&](const UnitForward& forward) {
    return gradients({x, w}, [&] { return forward(x).square().sum(); });
  };
  // Linear layers on three dimensions change the shape of their product.
  const UnitForward plain = [&](const at::Tensor& in) { return at::linear(at::linear(in, w).tanh(), w).exp(); };
  const UnitForward in_place = [&](const at::Tensor& in) {
    const at::Tensor h = at::linear(in, w);
    h.add_(1);
    return at::linear(h.tanh(), w).exp();
  };
  for (const UnitForward& forward : {plain, in_place})
    expect_equal(run(forward), run(recomputed(forward, {.name = "piece", .keep_products = true})));

  // With another factor in the second run, the gradient tells whose product was used.
  at::Tensor factor = at::ones({8, 8});
  const at::Tensor in = parameter({1, 8}, 1);
  const at::Tensor loss =
      recomputed([&](const at::Tensor& row) { return at::mm(row, factor).square(); }, {"piece", true})(in).sum();
  const at::Tensor product = at::mm(in.detach(), factor);
  factor = at::eye(8);
  torch::autograd::backward({loss}, {});
  EXPECT_TRUE(at::equal(in.grad(), product * 2));
}

TEST(Recompute, ConvolutionsAndProductsWithBiasAreKept) {
  const at::Tensor x = parameter({2, 3, 8, 8}, 1), w = parameter({4, 3, 3, 3}, 2), b = parameter({4}, 3);
  const at::Tensor v = parameter({5, 4 * 36}, 4), c = parameter({5}, 5);
  const UnitForward forward = [&](const at::Tensor& in) {
    return at::linear(at::conv2d(in, w, b).relu().flatten(1), v, c).tanh();
  };
  const auto run = [&](const UnitForward& piece) { return gradients({x, w, b, v, c}, [&] { return piece(x).sum(); }); };
  expect_equal(run(forward), run(recomputed(forward, {.name = "piece", .keep_products = true})));
}

TEST(Recompute, AutocastOfTheForwardHoldsInTheSecondRun) {
  const at::Tensor x = parameter({4, 8}, 1), w = parameter({8, 8}, 2);
  const UnitForward forward = [&](const at::Tensor& in) { return at::mm(at::mm(in, w).tanh(), w); };
  const auto run = [&](const UnitForward& piece) {
    return gradients({x, w}, [&] {
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const at::Tensor out = piece(x);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      EXPECT_EQ(out.scalar_type(), at::kBFloat16);
      return out.to(at::kFloat).square().sum();
    });
  };
  for (const bool products : {false, true})
    expect_equal(run(forward), run(recomputed(forward, {.name = "piece", .keep_products = products})));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Recompute, AModuleThatDoesNotRepeatItselfIsNamed) {
  const at::Tensor x = parameter({4, 8}, 1);
  int runs = 0;
  const auto backward = [&](const UnitForward& forward) {
    runs = 0;
    return message_of(
        [&] { gradients({x}, [&] { return recomputed(forward, {.name = "model.layers.3"})(x).sum(); }); });
  };
  const std::string fewer =
      backward([&](const at::Tensor& in) { return ++runs == 1 ? in.exp().sin().exp() : in.exp(); });
  EXPECT_NE(fewer.find("model.layers.3 does not repeat itself: it saved 1 tensors"), std::string::npos) << fewer;
  const std::string shape =
      backward([&](const at::Tensor& in) { return (++runs == 1 ? in : in.narrow(0, 0, 2)).exp().sin(); });
  EXPECT_NE(shape.find("saved tensor 0 is Float[2, 8] when recomputed and was Float[4, 8]"), std::string::npos)
      << shape;
  const std::string dtype =
      backward([&](const at::Tensor& in) { return (++runs == 1 ? in : in.to(at::kDouble)).exp().sin(); });
  EXPECT_NE(dtype.find("Double[4, 8]"), std::string::npos) << dtype;
}

TEST(Recompute, AnInputThatIsChangedInPlaceIsNamed) {
  const at::Tensor x = parameter({4}, 1);
  const std::string message = message_of([&] {
    gradients({x}, [&] {
      const at::Tensor h = x * 2;
      const at::Tensor out = recomputed([](const at::Tensor& in) { return in.exp(); }, {.name = "block 0"})(h);
      h.add_(1);
      return out.sum();
    });
  });
  EXPECT_NE(message.find("input 0 of block 0 was changed in place"), std::string::npos) << message;
}

TEST(Recompute, AnErrorInTheSecondRunReachesTheCallerAndTheNextRunIsWell) {
  const at::Tensor x = parameter({4}, 1);
  int runs = 0;
  const UnitForward piece = recomputed(
      [&](const at::Tensor& in) {
        if (++runs == 2) fail(ErrorKind::kMemory, "no memory for the second time");
        return in.exp().sin();
      },
      {.name = "piece"});
  EXPECT_EQ(message_of([&] { gradients({x}, [&] { return piece(x).sum(); }); }), "no memory for the second time");
  EXPECT_FALSE(in_second_run());
  expect_equal(gradients({x}, [&] { return x.exp().sin().sum(); }), gradients({x}, [&] { return piece(x).sum(); }));
}

TEST(Recompute, AKeptGraphIsWalkedTwice) {
  const at::Tensor x = parameter({4}, 1);
  const at::Tensor loss = recomputed([](const at::Tensor& in) { return in.exp().sin(); }, {.name = "piece"})(x).sum();
  torch::autograd::backward({loss}, {}, true);
  const at::Tensor once = x.grad().clone();
  torch::autograd::backward({loss}, {}, false);
  EXPECT_TRUE(at::equal(x.grad(), once * 2));
}

TEST(Recompute, APieceInsideAPieceIsRecomputedWithIt) {
  const at::Tensor x = parameter({4, 8}, 1), w = parameter({8, 8}, 2);
  int runs = 0;
  const UnitForward inner = [&](const at::Tensor& in) {
    ++runs;
    return at::mm(drop_half(in), w).tanh();
  };
  const UnitForward outer = recomputed(
      [&](const at::Tensor& in) {
        return recomputed(inner, {.name = "inner"})(recomputed(inner, {.name = "inner"})(in));
      },
      {.name = "outer"});
  const auto run = [&](const UnitForward& piece) {
    seed_default_generator(7);
    return gradients({x, w}, [&] { return piece(x).sum(); });
  };
  const auto kept = run([&](const at::Tensor& in) { return inner(inner(in)); });
  runs = 0;
  expect_equal(kept, run(outer));
  EXPECT_EQ(runs, 4);
}

// The forward keeps inputs only; during backward one piece's tensors live at a time; nothing stays.
TEST(Recompute, MemoryFallsAsStatedAndDoesNotGrow) {
  at::set_num_threads(1);
  tensor::install_memory_meter();
  tensor::set_memory_rank(0);
  constexpr std::int64_t kNumel = 1 << 13, kBytes = kNumel * 4, kPieces = 8, kSaved = 4;
  const at::Tensor x = parameter({kNumel}, 1);
  const UnitForward piece = [](const at::Tensor& in) { return in.sin().sin().sin().sin(); };  // saves 4 tensors
  const auto peak = [&](const UnitForward& forward) {
    const std::int64_t before = tensor::read_memory(0).total;
    tensor::reset_memory_peak(0);
    gradients({x}, [&] {
      at::Tensor h = x;
      for (int i = 0; i < kPieces; ++i) h = forward(h);
      return h.sum();
    });
    EXPECT_EQ(tensor::read_memory(0).total, before);
    return tensor::read_memory(0).total_peak - before;
  };
  const UnitForward again = recomputed(piece, {.name = "piece"});
  const std::int64_t kept = peak(piece), first = peak(again);
  EXPECT_GE(kept, (kPieces * kSaved - 1) * kBytes);
  // The inputs of the pieces, what one of them saves, and what backward holds at a time.
  EXPECT_LE(first, (kPieces + kSaved + 3) * kBytes);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(peak(again), first) << step;
}

TEST(Recompute, PassesWithoutGradientsRunOnceAndAlike) {
  const at::NoGradGuard no_grad;
  int runs = 0;
  const UnitForward piece = recomputed(
      [&](const at::Tensor& in) {
        ++runs;
        return in.exp();
      },
      {.name = "piece"});
  EXPECT_TRUE(at::equal(piece(at::ones({2})), at::ones({2}).exp()));
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace intarsia::nn
