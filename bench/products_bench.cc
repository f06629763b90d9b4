// The matrix products of one training step of a model and nothing else: what a step cannot be faster than.
// Usage: products_bench MODEL bf16|fp32 ROWS      prints the seconds of the median of seven rounds, on one thread.
// Products of one round: forward, gradient of the input and of the weight, of every linear layer with the head, for
// ROWS tokens; by our kernel or ATen's as a run would have it, into memory that is there. The first layer's are run for
// all layers.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "intarsia/plan/arch/llama.h"
#include "intarsia/tensor/matrix_product.h"

namespace {

struct Linear {
  at::Tensor x, weight, y, x_grad, weight_grad;
};

Linear make(std::int64_t rows, std::int64_t in, std::int64_t out, at::ScalarType type) {
  const auto random = [&](std::int64_t a, std::int64_t b) { return at::randn({a, b}).to(type); };
  return {random(rows, in), random(out, in), random(rows, out), random(rows, in), random(out, in)};
}

void run(const Linear& l) {
  using intarsia::tensor::multiply_into;
  multiply_into(l.y, l.x, l.weight.t(), false);
  multiply_into(l.x_grad, l.y, l.weight, false);
  multiply_into(l.weight_grad, l.y.t(), l.x, false);
}

}  // namespace

int main(int argc, char** argv) {
  const auto model = argc == 4 ? intarsia::plan::preset(argv[1]) : std::nullopt;
  if (!model) {
    std::fprintf(stderr, "usage: products_bench MODEL bf16|fp32 ROWS\n");
    return 2;
  }
  const at::ScalarType type = std::string(argv[2]) == "bf16" ? at::kBFloat16 : at::kFloat;
  const std::int64_t rows = std::atoll(argv[3]), hidden = model->hidden_size, ffn = model->intermediate_size;
  const std::int64_t queries = model->num_attention_heads * model->head_dim;
  const std::int64_t keys = model->num_key_value_heads * model->head_dim;
  at::set_num_threads(1);
  const std::vector<Linear> block{make(rows, hidden, queries, type), make(rows, hidden, keys, type),
                                  make(rows, hidden, keys, type),    make(rows, queries, hidden, type),
                                  make(rows, hidden, ffn, type),     make(rows, hidden, ffn, type),
                                  make(rows, ffn, hidden, type)};
  const Linear head = make(rows, hidden, model->vocab_size, type);
  std::vector<double> seconds;
  for (int round = 0; round < 8; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t layer = 0; layer < model->num_hidden_layers; ++layer)
      for (const Linear& linear : block) run(linear);
    run(head);
    if (round > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(seconds);
  std::printf("%.6f\n", seconds[seconds.size() / 2]);
  return 0;
}
