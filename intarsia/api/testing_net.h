// A module with everything odd in it, and the plain loop that it is held against.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "intarsia/api/engine.h"
#include "intarsia/comm/run_ranks.h"

namespace intarsia::api {

inline constexpr std::int64_t kVocabulary = 5, kWidth = 8, kTokens = 6, kSamples = 2;

// Two inputs, two outputs.
struct MixImpl : torch::nn::Module {
  MixImpl()
      : fc(register_module("fc", torch::nn::Linear(kWidth, kWidth))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))) {}
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    return {at::tanh(fc(x)) + y, norm(x * y)};
  }
  torch::nn::Linear fc;
  torch::nn::LayerNorm norm;
};

// 5 rows tied as embedding and head, 9 rows, 0 rows, a frozen layer, a parameter that nobody uses, a unit that is
// entered twice and not in the order of its registration.
struct OddNetImpl : torch::nn::Module {
  OddNetImpl()
      : embed(register_module("embed", torch::nn::Embedding(kVocabulary, kWidth))),
        down(register_module("down", Unit(torch::nn::Linear(9, kWidth)))),
        nine(register_module("nine", Unit(torch::nn::Linear(kWidth, 9)))),
        none(register_module("none", torch::nn::Linear(kWidth, 0))),
        still(register_module("still", torch::nn::Linear(kWidth, kWidth))),
        mix(register_module("mix", nn::Unit<MixImpl>())) {
    head = register_parameter("head", embed->weight);
    register_parameter("unused", at::ones({7}));
    for (const at::Tensor& parameter : still->parameters()) parameter.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor h = embed(ids);
    const auto [a, b] = mix->forward(h, h);
    const at::Tensor narrow = down(at::relu(nine(a + still(b))));
    const auto [c, d] = mix->forward(narrow, a);
    return at::linear(at::cat({c + d, none(c)}, -1), head);
  }
  template <typename M>
  static nn::Unit<M> Unit(const M& module) {
    return nn::Unit<M>(module->options);
  }
  torch::nn::Embedding embed;
  nn::Unit<torch::nn::Linear> down, nine;
  torch::nn::Linear none, still;
  nn::Unit<MixImpl> mix;
  at::Tensor head;
};
TORCH_MODULE(OddNet);

// torch's generator belongs to all threads.
inline OddNet seeded_net(std::uint64_t seed) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  OddNet net;
  return net;
}

struct Batch {
  at::Tensor ids, labels;  // [kSamples, kTokens] int64
};

// Micro-batch `index` of the run, the same numbers in any layout.
inline Batch batch_of(std::int64_t index) {
  const at::Tensor at = at::arange(kSamples * kTokens, at::kLong).view({kSamples, kTokens}) + index * 31;
  return {.ids = (at * at + 3 * at).remainder(kVocabulary),
          .labels = (at * 7 + at.div(3, "floor")).remainder(kVocabulary)};
}

inline at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.view({-1, kVocabulary}).to(at::kFloat), labels.view({-1}));
}

struct Curve {
  std::vector<double> losses, norms;
  std::vector<std::pair<std::string, at::Tensor>> weights;
};

}  // namespace intarsia::api
