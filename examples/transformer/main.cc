// A transformer of one's own that learns the bytes of a text. It is built without memory for its parameters and filled
// unit by unit, from the seed and the parameters' names: so any number of ranks starts from the same bits, and no rank
// ever holds the whole model. Embedding and head are one tied parameter of the root unit.
// Usage: own_transformer CONFIG.json TEXT
#include <intarsia/intarsia.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

namespace nn = torch::nn;

// Shape suffixes: B samples, T bytes, H hidden, N heads, D of a head.
constexpr std::int64_t kBytes = 256, kHidden = 64, kHeads = 4, kBlocks = 3, kLength = 64, kSteps = 120;

struct BlockImpl : nn::Module {
  // `mask_TT`: 0 where a byte may look, minus infinity elsewhere.
  torch::Tensor forward(const torch::Tensor& x_BTH, const torch::Tensor& mask_TT) {
    const std::int64_t batch = x_BTH.size(0), length = x_BTH.size(1);
    const auto heads = [&](const torch::Tensor& part) {
      return part.view({batch, length, kHeads, -1}).transpose(1, 2);
    };
    const auto qkv = query_key_value(first_norm(x_BTH)).chunk(3, -1);
    const torch::Tensor scores_BNTT = heads(qkv[0]).matmul(heads(qkv[1]).transpose(-2, -1)) / std::sqrt(16.0);
    const torch::Tensor mixed_BNTD = torch::softmax(scores_BNTT + mask_TT, -1).matmul(heads(qkv[2]));
    const torch::Tensor h_BTH = x_BTH + out(mixed_BNTD.transpose(1, 2).reshape({batch, length, kHidden}));
    return h_BTH + down(torch::gelu(up(second_norm(h_BTH))));
  }

  static nn::LayerNorm norm() { return nn::LayerNorm(nn::LayerNormOptions({kHidden})); }
  nn::LayerNorm first_norm = register_module("first_norm", norm()),
                second_norm = register_module("second_norm", norm());
  nn::Linear query_key_value = register_module("query_key_value", nn::Linear(kHidden, 3 * kHidden));
  nn::Linear out = register_module("out", nn::Linear(kHidden, kHidden));
  nn::Linear up = register_module("up", nn::Linear(kHidden, 4 * kHidden));
  nn::Linear down = register_module("down", nn::Linear(4 * kHidden, kHidden));
};

struct TransformerImpl : nn::Module {
  TransformerImpl() {
    for (std::int64_t i = 0; i < kBlocks; ++i) blocks->push_back(intarsia::Unit<BlockImpl>());
    register_parameter("head", embed->weight);
  }
  // ids_BT -> logits [B, T, kBytes]
  torch::Tensor forward(const torch::Tensor& ids_BT) {
    const std::int64_t length = ids_BT.size(1);
    torch::Tensor x_BTH = embed(ids_BT) + place(torch::arange(length));
    const torch::Tensor mask_TT =
        torch::full({length, length}, -std::numeric_limits<double>::infinity(), x_BTH.options()).triu(1);
    for (const auto& block : *blocks) x_BTH = block->as<intarsia::Unit<BlockImpl>>()->forward(x_BTH, mask_TT);
    return torch::linear(norm(x_BTH), embed->weight);
  }

  nn::Embedding embed = register_module("embed", nn::Embedding(kBytes, kHidden));
  nn::Embedding place = register_module("place", nn::Embedding(kLength, kHidden));
  nn::ModuleList blocks = register_module("blocks", nn::ModuleList());
  nn::LayerNorm norm = register_module("norm", BlockImpl::norm());
};
TORCH_MODULE(Transformer);

torch::Tensor read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 4 * kLength) intarsia::fail(intarsia::ErrorKind::kData, path, ": too short a text");
  return torch::tensor(bytes, torch::kByte).to(torch::kLong);
}

int train(const char* config, const char* path) {
  const torch::Tensor text = read_bytes(path);
  intarsia::Options options;
  // Torch's own rule for embeddings (deviation 1) suits no tied head.
  options.init = [](const std::string&, const std::vector<std::int64_t>& shape) -> std::optional<intarsia::InitValue> {
    if (shape.size() < 2) return std::nullopt;
    return intarsia::InitValue{.std = 0.05};
  };
  auto engine = intarsia::initialize(intarsia::on_meta([] { return Transformer(); }), config, options);
  const std::int64_t micro = engine.micro_batch_size();

  // Sample i of the run begins at a place that follows from i alone, so the order does not depend on the ranks.
  const std::int64_t places = text.size(0) - kLength - 1;
  double loss_sum = 0, right = 0;
  std::int64_t bytes = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    do {
      std::vector<torch::Tensor> samples;
      const std::int64_t first = (step * engine.micro_batches() + engine.micro_batch()) * micro;
      for (std::int64_t i = first; i < first + micro; ++i)
        samples.push_back(text.narrow(0, i * 7919 % places, kLength + 1));
      const torch::Tensor ids = torch::stack(samples);
      const torch::Tensor targets = ids.narrow(1, 1, kLength).flatten();
      const torch::Tensor logits = engine.forward(ids.narrow(1, 0, kLength)).to(torch::kFloat).flatten(0, 1);
      const auto options_sum = nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
      const torch::Tensor loss = nn::functional::cross_entropy(logits, targets, options_sum);
      engine.backward(loss, targets.numel());  // weighted by bytes
      if (step >= kSteps - 10) {
        loss_sum += loss.item<double>();
        right += logits.argmax(1).eq(targets).sum().item<double>();
        bytes += targets.numel();
      }
    } while (!engine.step());
  }
  const double all = engine.sum(static_cast<double>(bytes));
  const double loss = engine.sum(loss_sum) / all, accuracy = engine.sum(right) / all;
  if (engine.rank() == 0)
    std::cout << "ranks " << engine.ranks() << "  training loss " << engine.last_step().loss << "  loss " << loss
              << "  accuracy " << accuracy << "\n";
  return 0;
}

int main(int argc, char** argv) {
  try {
    if (argc != 3) intarsia::fail(intarsia::ErrorKind::kUsage, "usage: own_transformer CONFIG.json TEXT");
    return train(argv[1], argv[2]);
  } catch (const intarsia::Error& error) {
    std::cerr << error.what() << "\n";
    return intarsia::exit_code(error.kind());
  }
}
