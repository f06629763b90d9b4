// A linear layer's parameters, and its adapter where the plan has one. Internal to models.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/base/philox.h"
#include "intarsia/models/dropout.h"
#include "intarsia/models/spec_index.h"
#include "intarsia/nn/parameters.h"
#include "intarsia/plan/lora.h"

namespace intarsia::models {

// Indices of parameters; all but the weight may be kNoParam.
struct Linear {
  int weight = kNoParam, bias = kNoParam, lora_a = kNoParam, lora_b = kNoParam;
};

inline Linear linear_of(const plan::ModelSpec& spec, const std::string& layer) {
  return {.weight = param_of(spec, layer + ".weight"),
          .bias = param_or_none(spec, layer + ".bias"),
          .lora_a = param_or_none(spec, plan::lora_a_name(layer)),
          .lora_b = param_or_none(spec, plan::lora_b_name(layer))};
}

// What all adapters of a model have in common.
struct AdapterRule {
  double scale = 0;
  double dropout = 0;  // of what A reads, while places are set
  std::uint64_t seed = 0;
  std::vector<std::int64_t> places = {};  // of the samples of a training pass: Model::set_sample_places

  at::Tensor inputs(const Linear& at, const at::Tensor& x) const {
    if (dropout == 0 || places.empty()) return x;
    return drop_out(x, philox_key(seed, concat("adapter dropout:", at.lora_a)), dropout, places);
  }
};

// y + scale B (A x), or y where the layer has no adapter. Shapes: x [B, T, in], y [B, T, out].
// The factor is on A x, the smallest of the products. Source: LoRA (arXiv 2106.09685), section 4.1; dropout as PEFT's.
inline at::Tensor with_adapter(const nn::Parameters& parameters, const Linear& at, const AdapterRule& rule,
                               const at::Tensor& x, const at::Tensor& y) {
  if (at.lora_a == kNoParam) return y;
  const at::Tensor inner = at::linear(rule.inputs(at, x), parameters.leaf(at.lora_a)) * rule.scale;
  return y + at::linear(inner, parameters.leaf(at.lora_b));
}

// The head that gives logits: x [.., H], weight [V, H] -> [.., V].
inline at::Tensor linear_head(const at::Tensor& x, const at::Tensor& weight) { return at::linear(x, weight); }

}  // namespace intarsia::models
