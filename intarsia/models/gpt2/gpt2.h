// GPT-2, computed as Hugging Face's transformers computes it, without dropout.
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019); transformers,
// models/gpt2/modeling_gpt2.py.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/models/linear.h"
#include "intarsia/models/model.h"

namespace intarsia::models::gpt2 {

// Units: embeddings of tokens and positions, one per block, head (final norm and, when untied, lm_head). A tied head
// reads the token embedding's second leaf inside another entry of the embeddings' unit.
class Gpt2 final : public Model {
 public:
  Gpt2(const formats::HfConfig& config, const plan::ModelSpec& spec, const plan::RecomputePlan& recompute,
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
  // run() of whole samples, whose tokens stand at `positions`, or in one document.
  at::Tensor run_whole(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                       const at::Tensor& positions, const Head& head);
  struct Block {
    std::size_t index;
    int unit;
    Linear norm_1, attention, attention_out, norm_2, up, down;
    std::string name;
  };
  at::Tensor block_forward(const nn::Parameters& parameters, const Block& block, const at::Tensor& mask,
                           KeyValueCache* cache, const at::Tensor& x_BTH) const;
  // Of tokens at `places` [T] or [B, T]; with a cache the logits of the last one.
  at::Tensor run(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                 const at::Tensor& places, const at::Tensor& mask, const Head& head, KeyValueCache* cache);
  at::Tensor layer_norm(const nn::Parameters& parameters, const Linear& at, const at::Tensor& x) const;

  formats::HfConfig config_;
  plan::RecomputePlan recompute_;
  AdapterRule adapters_;
  int embed_, positions_, embed_unit_;
  Linear norm_;
  int head_unit_;
  int head_;  // parameter of the head: lm_head.weight, or the embedding when tied
  std::vector<Block> blocks_;
};

}  // namespace intarsia::models::gpt2
