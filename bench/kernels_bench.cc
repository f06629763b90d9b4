// Our kernels against ATen's operations on the same work: forward, and forward with backward, in turn, on one thread.
// Usage: kernels_bench [ROUNDS]      prints a Markdown table; times are CPU seconds of the thread, which other programs
// disturb little. Shapes: those of llama-34m at 1,024 tokens; the head also with a vocabulary of 131,072.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <time.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "intarsia/nn/attention.h"
#include "intarsia/nn/functions.h"
#include "intarsia/nn/linear_cross_entropy.h"
#include "intarsia/tensor/kernels/adamw.h"
#include "intarsia/tensor/kernels/in_use.h"
#include "intarsia/tensor/kernels/kernel_set.h"
#include "intarsia/tensor/kernels/rows.h"
#include "intarsia/tensor/matrix_product.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
using Work = std::function<void()>;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Measured {
  double seconds = 0;
  std::int64_t peak = 0;  // bytes of tensors above what was there before
};

Measured once(const Work& work) {
  tensor::reset_memory_peak(0);
  const std::int64_t before = tensor::read_memory(0).total;
  const double start = cpu_seconds();
  work();
  return {cpu_seconds() - start, tensor::read_memory(0).total_peak - before};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void compare(const std::string& name, int rounds, const Work& ours, const Work& plain) {
  std::vector<double> mine, theirs, ratios;
  std::int64_t my_peak = 0, their_peak = 0;
  for (int round = 0; round <= rounds; ++round) {
    Measured a, b;
    for (const bool mine_now : {round % 2 == 0, round % 2 != 0}) {
      const tensor::PlainOperations operations(!mine_now);  // also of what calls of ATen's end in
      (mine_now ? a : b) = once(mine_now ? ours : plain);
    }
    if (round == 0) continue;
    mine.push_back(a.seconds);
    theirs.push_back(b.seconds);
    ratios.push_back(b.seconds / a.seconds);
    my_peak = a.peak;
    their_peak = b.peak;
  }
  std::printf("| %s | %.3f | %.3f | %.2f (%.2f to %.2f) | %.2f | %.2f |\n", name.c_str(), median(mine) * 1e3,
              median(theirs) * 1e3, median(ratios), *std::ranges::min_element(ratios),
              *std::ranges::max_element(ratios), static_cast<double>(my_peak) / (1 << 20),
              static_cast<double>(their_peak) / (1 << 20));
  std::fflush(stdout);
}

using Operation = std::function<at::Tensor(const Tensors&)>;

// The operation's value and gradients of all inputs.
Work with_backward(const Operation& operation, const Tensors& inputs) {
  return [operation, inputs] {
    Tensors leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_());
    const at::Tensor value = operation(leaves);
    torch::autograd::grad({value}, leaves, {at::ones_like(value)});
  };
}

void compare_both(const std::string& name, int rounds, const Operation& ours, const Operation& plain,
                  const Tensors& inputs) {
  compare(
      name + ", forward", rounds, [&] { ours(inputs); }, [&] { plain(inputs); });
  compare(name + ", with backward", rounds, with_backward(ours, inputs), with_backward(plain, inputs));
}

void run(at::ScalarType type, int rounds) {
  const std::string dtype = type == at::kFloat ? "fp32" : "bf16";
  const auto random = [&](at::IntArrayRef shape) { return at::randn(shape).to(type); };
  if (type == at::kBFloat16) {
    for (const auto& [m, n, k] :
         {std::tuple{1024, 512, 512}, {1024, 1408, 512}, {1024, 512, 1408}, {1408, 512, 1024}}) {
      const at::Tensor a = random({m, k}), b = random({n, k}).t(), out = at::empty({m, n}, a.options());
      if (!tensor::product_or_none(a, b).defined()) continue;
      compare(
          dtype + " product " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k), rounds,
          [&] { tensor::product_or_none(a, b); }, [&] { at::mm(a, b); });
    }
    const at::Tensor sum = at::zeros({1408, 512}), grad = random({1408, 512});
    compare(
        dtype + " gradient into an fp32 sum", rounds,
        [&] { tensor::add_to_fp32(sum.mutable_data_ptr<float>(), grad.const_data_ptr(), grad.numel(), true); },
        [&] { at::Tensor(sum).add_(grad); });
  }
  compare_both(
      dtype + " RMS norm 1024 x 512", rounds, [](const Tensors& x) { return nn::rms_norm(x[0], x[1], 1e-5); },
      [](const Tensors& x) { return nn::plain_rms_norm(x[0], x[1], 1e-5); }, {random({1024, 512}), random({512})});
  const at::Tensor cos = random({256, 64}), sin = random({256, 64});
  compare_both(
      dtype + " rotary 4 x 256 x 8 x 64", rounds,
      [&](const Tensors& x) { return nn::rotate(x[0].transpose(1, 2), cos, sin); },
      [&](const Tensors& x) { return nn::plain_rotate(x[0].transpose(1, 2), cos, sin); }, {random({4, 256, 8, 64})});
  compare_both(
      dtype + " SwiGLU 1024 x 1408", rounds, [](const Tensors& x) { return nn::swiglu(x[0], x[1]); },
      [](const Tensors& x) { return nn::plain_swiglu(x[0], x[1]); }, {random({1024, 1408}), random({1024, 1408})});
  for (const std::int64_t length : {256, 2048}) {
    const auto heads = [&] { return random({std::max<std::int64_t>(1, 1024 / length), length, 8, 64}); };
    compare_both(
        dtype + " causal attention of 8 heads of 64, " + std::to_string(length) + " tokens", rounds,
        [](const Tensors& x) {
          return nn::causal_attention(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2));
        },
        [](const Tensors& x) {
          return nn::plain_causal_attention(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2));
        },
        {heads(), heads(), heads()});
  }
  for (const std::int64_t vocab : {8192, 131072}) {
    const at::Tensor targets = at::randint(0, vocab, {1024}, at::kLong);
    const Tensors inputs{random({1024, 512}), random({vocab, 512})};
    compare(
        dtype + " head and loss, vocabulary " + std::to_string(vocab) + ", with backward",
        vocab > 100000 ? std::min(rounds, 3) : rounds,
        with_backward([&](const Tensors& x) { return nn::linear_cross_entropy(x[0], x[1], targets); }, inputs),
        with_backward([&](const Tensors& x) { return nn::plain_linear_cross_entropy(x[0], x[1], targets); }, inputs));
  }
}

// AdamW against a copy of as many bytes: 16 read and 12 written an element.
void run_adam(int rounds) {
  const std::int64_t numel = 1 << 24;
  const at::Tensor param = at::randn({numel}), grad = at::randn({numel}), m = at::zeros({numel}),
                   v = at::zeros({numel});
  const at::Tensor from = at::zeros({numel * 14 / 4}), to = at::zeros({numel * 14 / 4});
  compare(
      "AdamW of 16 Mi, against a copy of its 28 bytes an element", rounds,
      [&] {
        tensor::adam_update(param.mutable_data_ptr<float>(), grad.const_data_ptr<float>(), m.mutable_data_ptr<float>(),
                            v.mutable_data_ptr<float>(), numel, {.lr = 1e-3});
      },
      [&] { at::Tensor(to).copy_(from); });
}

}  // namespace
}  // namespace intarsia::bench

int main(int argc, char** argv) {
  using namespace intarsia;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  at::set_num_threads(1);
  tensor::install_memory_meter();
  tensor::set_memory_rank(0);
  std::printf("Kernels of %s, %d rounds in turn, one thread.\n\n", tensor::kernels().name, rounds);
  std::printf("| work | ours ms | ATen's ms | ATen's / ours | ours MiB | ATen's MiB |\n|---|--:|--:|--:|--:|--:|\n");
  bench::run(at::kBFloat16, rounds);
  bench::run(at::kFloat, rounds);
  bench::run_adam(rounds);
  return 0;
}
