// A transformer by its sizes, and the seconds and bytes of its layers in any layout: what the search looks at.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/time/cluster.h"

namespace intarsia::plan {

struct TransformerShape {
  double layers = 0;
  double hidden = 0;
  double heads = 0;
  double kv_heads = 0;
  double head_dim = 0;
  double ffn = 0;
  double vocab = 0;
  double sequence = 0;
  bool gated = true;    // feed-forward with gate (three matrices) or without (two)
  bool tied = false;    // head and embedding are one
  bool biases = false;  // of linears and norms, and learned positions: GPT-2 and its kin

  double layer_parameters() const;
  double embedding_parameters() const;  // in and out, and learned positions
  double parameters() const { return layers * layer_parameters() + embedding_parameters(); }
};

TransformerShape shape_of(const formats::HfConfig& config, double sequence);

// How a model's operations are implemented: what passes over memory, beside products, a layer makes. In elements of the
// compute type: `hidden` and `ffn` for each token and hidden or ffn element, `scores` for each attention score.
struct Implementation {
  const char* name = "";
  bool materialises_scores = false;
  double hidden = 0, ffn = 0, scores = 0;
  double backward = 1.7;     // passes of backward / passes of forward
  double logits_bytes = 12;  // read and written for each logit
};
inline constexpr Implementation kMegatron{"Megatron-LM 2022, fused", true, 11, 2, 5.5, 1.6, 16};
inline constexpr Implementation kEager{"PyTorch eager, flash attention", false, 16, 4, 0, 2, 16};
inline constexpr Implementation kEagerFp32Norms{"PyTorch eager, norms and rotations in fp32", false, 40, 5, 0, 1.7, 24};
inline constexpr Implementation kCompiled{"fused by a compiler, flash attention", false, 12, 3, 0, 1.7, 12};
inline constexpr Implementation kHandWritten{"hand-written kernels, flash attention", false, 9, 2, 0, 1.6, 4};

// kScores: attention's scores (Megatron-LM's "selective"); kHalf: every second product (torchtitan's op policy);
// kProducts: everything but products, as `--recompute selective` does here.
enum class Recomputed { kNone, kScores, kHalf, kProducts, kFull };

// The part of a layout that decides one layer's seconds.
struct LayerLayout {
  double micro_batch = 1;
  double tensor = 1;
  bool sequence_parallel = false;
  double tensor_overlap = 0;  // share of tensor-parallel traffic that is hidden
  Recomputed recomputed = Recomputed::kNone;
  MatrixType type = MatrixType::kHalf;
};

// Seconds of one micro-batch through one layer of one rank.
struct LayerSeconds {
  double forward = 0, backward = 0, recompute = 0;  // with the tensor-parallel traffic below
  double tensor_traffic = 0;                        // forward's and backward's together, not hidden
  double total() const { return forward + backward + recompute; }
};
LayerSeconds layer_seconds(const ClusterSpec& cluster, const TransformerShape& shape, const LayerLayout& layout,
                           const Implementation& implementation);
// Head and loss, forward and backward.
double head_seconds(const ClusterSpec& cluster, const TransformerShape& shape, const LayerLayout& layout,
                    const Implementation& implementation);

// Floating-point operations of training on one token, by the conventions in use.
enum class FlopsConvention {
  kCausalHalf,  // 6 x parameters but the input embedding + 6 L a d s: what is computed
  kFullSquare,  // 6 x all parameters + 12 L a d s: llm-foundry, llm.c
  kPaper,       // 72 L h^2 (1 + s / 6h + V / 12 L h): Megatron-LM, Korthikanti et al.
};
double flops_per_token(const TransformerShape& shape, FlopsConvention convention);

// Bytes of activations that one layer keeps for each token between forward and backward with this program's own Llama
// (docs/plan.md, by operation), divided as tensor and sequence parallelism divide them. Sizes: 4 in fp32, else 2.
double kept_bytes_per_token(const TransformerShape& shape, const LayerLayout& layout);
// Bytes for each token of the fullest moment around the head: logits, their fp32 copies and gradients.
double logits_bytes_per_token(const TransformerShape& shape, const LayerLayout& layout);

}  // namespace intarsia::plan
