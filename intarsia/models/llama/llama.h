// Llama, and the families that are Llama with other settings, computed as Hugging Face's transformers computes them.
// Source: Llama 2 (arXiv 2307.09288), Mistral 7B (arXiv 2310.06825) for windows, Qwen2 (arXiv 2407.10671) for biases,
// Qwen3 (arXiv 2505.09388) for norms of queries and keys; transformers, models/*/modeling_*.py for the order of casts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/models/linear.h"
#include "intarsia/models/model.h"

namespace intarsia::models::llama {

// Units: embedding, one per block, head (final norm and, when untied, lm_head). A tied head reads the embedding's
// second leaf inside another entry of the embedding's unit.
class Llama final : public Model {
 public:
  Llama(const formats::HfConfig& config, const plan::ModelSpec& spec, const plan::RecomputePlan& recompute,
        AdapterRule adapters = {});
  at::Tensor logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                    const at::Tensor& positions) override;
  at::Tensor last_logits(const nn::Parameters& parameters, nn::UnitEvents* events, std::span<const std::int64_t> ids,
                         KeyValueCache& cache) override;
  void set_sample_places(std::vector<std::int64_t> places) override { adapters_.places = std::move(places); }
  at::Tensor loss_sum(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                      const at::Tensor& positions, const at::Tensor& labels) override;

 private:
  // The head: of the last norm's result and the head's weight.
  using Head = std::function<at::Tensor(const at::Tensor& normed, const at::Tensor& weight)>;
  struct Block {
    std::size_t index;
    int unit, input_norm, post_norm;
    int q_norm, k_norm;  // kNoParam without
    Linear q, k, v, o, gate, up, down;
    bool windowed;
    std::string name;
  };
  // What the blocks of one forward share; recomputation in backward reads it too.
  struct Places {
    at::Tensor cos, sin;  // [T, D], or [B, 1, T, D] with positions; compute dtype
    at::Tensor mask, window_mask;
    KeyValueCache* cache = nullptr;
  };
  // With a cache, of the last token alone.
  at::Tensor run(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                 const std::shared_ptr<const Places>& places, const Head& head);
  at::Tensor linear(const nn::Parameters& parameters, const Linear& at, const at::Tensor& x) const;
  at::Tensor block_forward(const nn::Parameters& parameters, const Block& block, const Places& places,
                           const at::Tensor& x_BTH) const;
  at::Tensor attention(const nn::Parameters& parameters, const Block& block, const Places& places,
                       const at::Tensor& x_BTH) const;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) const;
  // Of `length` tokens behind `past` others.
  std::shared_ptr<const Places> places_of(std::int64_t length, const at::Tensor& positions,
                                          const at::TensorOptions& options, std::int64_t past = 0);

  formats::HfConfig config_;
  plan::RecomputePlan recompute_;
  AdapterRule adapters_;
  int embed_, embed_unit_, norm_, head_unit_;
  int head_;  // parameter of the head: lm_head.weight, or the embedding when tied
  std::vector<Block> blocks_;
  std::shared_ptr<const Places> last_;  // of the last forward without positions
};

}  // namespace intarsia::models::llama
