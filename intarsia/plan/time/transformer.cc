#include "intarsia/plan/time/transformer.h"

#include <algorithm>
#include <array>

#include "intarsia/plan/time/cost.h"

namespace intarsia::plan {
namespace {

struct Product {
  double rows, columns, inner;
  double flops() const { return 2 * rows * columns * inner; }
};

std::array<Product, 4> products(const TransformerShape& shape, const LayerLayout& layout) {
  const double tokens = layout.micro_batch * shape.sequence, t = layout.tensor;
  const double queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  return {Product{tokens, (queries + 2 * keys) / t, shape.hidden}, Product{tokens, shape.hidden, queries / t},
          Product{tokens, (shape.gated ? 2 : 1) * shape.ffn / t, shape.hidden},
          Product{tokens, shape.hidden, shape.ffn / t}};
}

}  // namespace

double TransformerShape::layer_parameters() const {
  const double queries = heads * head_dim, keys = kv_heads * head_dim;
  const double matrices = hidden * (2 * queries + 2 * keys) + (gated ? 3 : 2) * hidden * ffn;
  const double vectors = biases ? queries + 2 * keys + ffn + 6 * hidden : 2 * hidden;
  return matrices + vectors;
}

double TransformerShape::embedding_parameters() const {
  return (tied ? 1 : 2) * vocab * hidden + (biases ? sequence * hidden + 2 * hidden : hidden);
}

TransformerShape shape_of(const formats::HfConfig& config, double sequence) {
  return {.layers = static_cast<double>(config.num_hidden_layers),
          .hidden = static_cast<double>(config.hidden_size),
          .heads = static_cast<double>(config.num_attention_heads),
          .kv_heads = static_cast<double>(config.num_key_value_heads),
          .head_dim = static_cast<double>(config.head_dim),
          .ffn = static_cast<double>(config.intermediate_size),
          .vocab = static_cast<double>(config.vocab_size),
          .sequence = sequence,
          .gated = config.model_type != "gpt2",
          .tied = config.tie_word_embeddings,
          .biases = config.model_type == "gpt2"};
}

LayerSeconds layer_seconds(const ClusterSpec& cluster, const TransformerShape& shape, const LayerLayout& layout,
                           const Implementation& how) {
  const DeviceSpec& device = cluster.device;
  const double tokens = layout.micro_batch * shape.sequence, t = layout.tensor;
  const double size = layout.type == MatrixType::kFp32 ? 4 : 2;
  double forward_products = 0;
  for (const Product& product : products(shape, layout))
    forward_products += matrix_seconds(device, layout.type, product.flops());

  const double score_flops = 2 * tokens * shape.sequence * shape.heads * shape.head_dim / t;  // causal half
  const double scores = layout.micro_batch * shape.heads * shape.sequence * shape.sequence / t;
  const double score_passes = memory_seconds(device, size * scores * how.scores);
  double forward_scores = 0, backward_scores = 0;
  if (how.materialises_scores) {
    // The whole square, in small products that reach 0.6 of what large ones do.
    const auto type = static_cast<std::size_t>(layout.type);
    const double rate = 0.6 * device.peak_flops[type] * device.matrix_efficiency[type];
    forward_scores = (2 * score_flops + device.half_flops) / rate;
    backward_scores = 2 * forward_scores;
  } else {
    forward_scores = attention_seconds(device, score_flops);
    backward_scores = 2.5 * forward_scores;
  }
  const double sequence_share = layout.sequence_parallel ? t : 1;
  const double forward_passes =
      memory_seconds(device, size * tokens * (how.hidden * shape.hidden / sequence_share + how.ffn * shape.ffn / t)) +
      score_passes;
  const double backward_passes = how.backward * forward_passes;

  double forward_traffic = 0, backward_traffic = 0;
  if (t > 1) {
    const AxisShape axis{.ranks = t, .per_host = std::min<double>(t, cluster.devices_per_host)};
    const double bytes = 2 * tokens * shape.hidden;
    const double gather = axis_seconds(cluster, axis, Collective::kAllGather, bytes);
    const double scatter = axis_seconds(cluster, axis, Collective::kReduceScatter, bytes);
    forward_traffic = 2 * (gather + scatter);
    // With sequence parallelism inputs are gathered again in backward; most of that hides behind a product.
    backward_traffic = forward_traffic + (layout.sequence_parallel ? 0.6 * gather : 0);
    forward_traffic *= 1 - layout.tensor_overlap;
    backward_traffic *= 1 - layout.tensor_overlap;
  }

  LayerSeconds out;
  out.tensor_traffic = forward_traffic + backward_traffic;
  out.forward = forward_products + forward_scores + forward_passes + forward_traffic;
  out.backward = 2 * forward_products + backward_scores + backward_passes + backward_traffic;
  switch (layout.recomputed) {
    case Recomputed::kNone:
      break;
    case Recomputed::kScores:
      out.recompute = forward_scores + score_passes;
      break;
    case Recomputed::kHalf:
      out.recompute = forward_passes + forward_products / 2;
      break;
    case Recomputed::kProducts:
      out.recompute = forward_passes + forward_scores;
      break;
    case Recomputed::kFull:
      out.recompute = out.forward;
      out.tensor_traffic += forward_traffic;
      break;
  }
  return out;
}

double head_seconds(const ClusterSpec& cluster, const TransformerShape& shape, const LayerLayout& layout,
                    const Implementation& how) {
  const double tokens = layout.micro_batch * shape.sequence, columns = shape.vocab / layout.tensor;
  const MatrixType type = layout.type == MatrixType::kFp8 ? MatrixType::kHalf : layout.type;
  return 3 * matrix_seconds(cluster.device, type, 2 * tokens * columns * shape.hidden) +
         memory_seconds(cluster.device, tokens * columns * how.logits_bytes);
}

double flops_per_token(const TransformerShape& shape, FlopsConvention convention) {
  const double attention = shape.layers * shape.heads * shape.head_dim * shape.sequence;
  switch (convention) {
    case FlopsConvention::kCausalHalf: {
      const double input = shape.tied ? 0 : shape.vocab * shape.hidden;
      return 6 * (shape.parameters() - input) + 6 * attention;
    }
    case FlopsConvention::kFullSquare:
      return 6 * shape.parameters() + 12 * attention;
    case FlopsConvention::kPaper:
      break;
  }
  return 72 * shape.layers * shape.hidden * shape.hidden *
         (1 + shape.sequence / (6 * shape.hidden) + shape.vocab / (12 * shape.layers * shape.hidden));
}

double kept_bytes_per_token(const TransformerShape& shape, const LayerLayout& layout) {
  const double t = layout.tensor, s = layout.sequence_parallel ? t : 1;
  const double queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  const bool wide = layout.type == MatrixType::kFp32;
  const double size = wide ? 4 : 2;
  if (layout.recomputed == Recomputed::kFull) return size * shape.hidden / s;
  // Norms keep their input in fp32, the scaled and the normed one; two of them. In fp32 the input is the block's own.
  const double norms = (wide ? 24 : 16) * shape.hidden / s + 8;
  const double attention = size * (2 * queries + 2 * keys) / t + 4 * shape.heads / t;
  const double feed_forward = size * (shape.gated ? 4 : 2) * shape.ffn / t;
  if (layout.recomputed == Recomputed::kProducts)  // the block's input, q, k, v, the output's input, gate and up
    return size * (2 * shape.hidden / s + (queries + 2 * keys) / t + (shape.gated ? 2 : 1) * shape.ffn / t);
  if (layout.recomputed == Recomputed::kHalf) return size * (shape.hidden / s + (queries + keys) / t + shape.ffn / t);
  return norms + attention + feed_forward;
}

double logits_bytes_per_token(const TransformerShape& shape, const LayerLayout& layout) {
  const double size = layout.type == MatrixType::kFp32 ? 4 : 2;
  return shape.vocab / layout.tensor * (size + 3 * 4);  // logits, log-softmax, two gradients in fp32
}

}  // namespace intarsia::plan
