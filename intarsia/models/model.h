// What the training loop sees of a model family.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "intarsia/formats/hf_config.h"
#include "intarsia/models/key_value_cache.h"
#include "intarsia/nn/parameters.h"
#include "intarsia/nn/unit_events.h"
#include "intarsia/plan/lora.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::models {

// A causal language model without memory of its own: parameters are given to each call.
// Threads: one rank's thread.
class Model {
 public:
  virtual ~Model() = default;
  // Shapes: input_ids [B, T] int64, each below vocab_size -> logits [B, T, vocab_size] in compute dtype (with
  // autocast in its type), on the parameters' device; input_ids and positions are on the CPU.
  // `events` hears of each unit; null when all parameters are whole.
  // `positions` [B, T] int64: each token's place in its document, which begins where it is 0; attention stays within
  // documents. Undefined: 0 to T - 1 in each row, which is one document. Memory with it: B * T * T elements a call.
  virtual at::Tensor logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                            const at::Tensor& positions) = 0;
  at::Tensor logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids) {
    return logits(parameters, events, input_ids, at::Tensor());
  }
  // The logits [vocab_size] behind the last of `ids`, which are not empty: what logits() gives, of the last token
  // alone. Runs the tokens that `cache` does not hold; afterwards it holds all. REQUIRES: no gradients are recorded.
  virtual at::Tensor last_logits(const nn::Parameters& parameters, nn::UnitEvents* events,
                                 std::span<const std::int64_t> ids, KeyValueCache& cache) = 0;
  // For the passes to come, forward and backward, until it is called again: where the sample of each row of input_ids
  // stands in the run's order of data, by which dropout is drawn. Empty, as at first: nothing is dropped.
  virtual void set_sample_places(std::vector<std::int64_t> places) = 0;
  // causal_loss_sum of these logits and labels [B, T]; where there is a kernel for it, without ever holding all logits.
  // With gradients enabled those of the head's input and weight are computed at once; the backward may run once.
  virtual at::Tensor loss_sum(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                              const at::Tensor& positions, const at::Tensor& labels);
};

// The model of `config`, whose parameters are those of `plan.model`, with the plan's recomputation and autocast. `lora`
// gives the factor and the dropout of adapters, if plan.model has any.
// Errors: kUnsupported for an unknown family.
std::unique_ptr<Model> make_model(const formats::HfConfig& config, const plan::RunPlan& plan,
                                  const plan::LoraPlan& lora = {});

// Sum of -log softmax(logits[b, t - 1])[labels[b, t]] over all t >= 1 with labels[b, t] != -100, in fp32.
// Shapes: logits [B, T, V], labels [B, T] int64, there or on the CPU -> scalar fp32, where logits are.
at::Tensor causal_loss_sum(const at::Tensor& logits, const at::Tensor& labels);

// Each row's next label, -100 at the end of a sample: targets [B * T] for labels [B, T].
at::Tensor next_labels(const at::Tensor& labels);

}  // namespace intarsia::models
