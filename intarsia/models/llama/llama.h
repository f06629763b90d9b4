// Llama, computed as Hugging Face's transformers computes it.
// Source: Llama 2 (arXiv 2307.09288); transformers, models/llama/modeling_llama.py for the order of casts.
#pragma once

#include <string>
#include <vector>

#include "intarsia/models/model.h"

namespace intarsia::models::llama {

// Units: embedding, one per block, head (final norm and, when untied, lm_head). A tied head reads the embedding's
// second leaf inside another entry of the embedding's unit.
class Llama final : public Model {
 public:
  Llama(const formats::HfConfig& config, const plan::ModelSpec& spec, const plan::RecomputePlan& recompute);
  at::Tensor logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids) override;

 private:
  struct Block {  // indices of parameters
    int unit, input_norm, q, k, v, o, post_norm, gate, up, down;
    std::string name;
  };
  at::Tensor block_forward(const nn::Parameters& parameters, const Block& block, const at::Tensor& x_BTH) const;
  at::Tensor attention(const nn::Parameters& parameters, const Block& block, const at::Tensor& x_BTH) const;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) const;
  void prepare_rotation(std::int64_t length, at::ScalarType type);

  formats::HfConfig config_;
  plan::RecomputePlan recompute_;
  int embed_, embed_unit_, norm_, head_unit_;
  int head_;  // parameter of the head: lm_head.weight, or the embedding when tied
  std::vector<Block> blocks_;
  at::Tensor inverse_frequencies_;  // [head_dim / 2] fp32
  at::Tensor cos_TD_, sin_TD_;      // of the longest sequence so far, compute dtype
};

}  // namespace intarsia::models::llama
