// Shape suffixes: B samples, T tokens, H hidden, N heads, K key/value heads, D head_dim.
#include "intarsia/models/llama/llama.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <tuple>

#include "intarsia/models/attention.h"
#include "intarsia/models/spec_index.h"
#include "intarsia/nn/functions.h"
#include "intarsia/nn/linear_cross_entropy.h"
#include "intarsia/nn/recompute/blocks.h"
#include "intarsia/nn/unit.h"

namespace intarsia::models::llama {

Llama::Llama(const formats::HfConfig& config, const plan::ModelSpec& spec, const plan::RecomputePlan& recompute,
             AdapterRule adapters)
    : config_(config),
      recompute_(recompute),
      adapters_(std::move(adapters)),
      embed_(param_of(spec, "model.embed_tokens.weight")),
      embed_unit_(unit_of(spec, embed_)),
      norm_(param_of(spec, "model.norm.weight")),
      head_unit_(unit_of(spec, norm_)),
      head_(param_of(spec, "lm_head.weight")) {
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const auto at = [&](const char* name) { return param_of(spec, prefix + name + ".weight"); };
    const auto linear = [&](const char* name) { return linear_of(spec, prefix + name); };
    Block block{};
    block.index = static_cast<std::size_t>(i);
    block.input_norm = at("input_layernorm");
    block.unit = unit_of(spec, block.input_norm);
    block.name = spec.units[static_cast<std::size_t>(block.unit)].name;
    block.q = linear("self_attn.q_proj");
    block.k = linear("self_attn.k_proj");
    block.v = linear("self_attn.v_proj");
    block.o = linear("self_attn.o_proj");
    block.q_norm = param_or_none(spec, prefix + "self_attn.q_norm.weight");
    block.k_norm = param_or_none(spec, prefix + "self_attn.k_norm.weight");
    block.post_norm = at("post_attention_layernorm");
    block.gate = linear("mlp.gate_proj");
    block.up = linear("mlp.up_proj");
    block.down = linear("mlp.down_proj");
    block.windowed = config.window_of(i) > 0;
    blocks_.push_back(block);
  }
}

// Computed on the host and then moved: the same tables on every device.
std::shared_ptr<const Llama::Places> Llama::places_of(std::int64_t length, const at::Tensor& positions,
                                                      const at::TensorOptions& options, std::int64_t past) {
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  const bool kept = past == 0 && last_ && last_->cos.size(0) == length && last_->cos.scalar_type() == type;
  if (kept && !positions.defined()) return last_;
  const at::NoGradGuard no_grad;
  Places places;
  const at::Tensor frequencies = at::tensor(formats::rope_inverse_frequencies(config_, past + length), at::kFloat);
  const at::Tensor angles = at::outer(at::arange(past, past + length, at::kFloat), frequencies);
  const at::Tensor both = at::cat({angles, angles}, -1);
  const double factor = config_.rope_scaling.attention_factor;
  places.cos = both.cos().mul_(factor).to(type);
  places.sin = both.sin().mul_(factor).to(type);
  if (positions.defined()) {
    places.cos = places.cos.index({positions}).unsqueeze(1);
    places.sin = places.sin.index({positions}).unsqueeze(1);
  }
  const auto needed = [&](bool windowed) {
    return std::ranges::find(blocks_, windowed, &Block::windowed) != blocks_.end();
  };
  if (needed(false)) places.mask = attention_mask(length, 0, positions, type, past);
  if (needed(true)) places.window_mask = attention_mask(length, config_.sliding_window, positions, type, past);
  for (at::Tensor* const table : {&places.cos, &places.sin, &places.mask, &places.window_mask})
    if (table->defined()) *table = table->to(options.device());
  auto result = std::make_shared<const Places>(std::move(places));
  if (past == 0 && !positions.defined()) last_ = result;
  return result;
}

at::Tensor Llama::rms_norm(const at::Tensor& x, const at::Tensor& weight) const {
  return nn::rms_norm(x, weight, config_.norm_eps);
}

at::Tensor Llama::linear(const nn::Parameters& parameters, const Linear& at, const at::Tensor& x) const {
  const at::Tensor y = at.bias == kNoParam ? at::linear(x, parameters.leaf(at.weight))
                                           : at::linear(x, parameters.leaf(at.weight), parameters.leaf(at.bias));
  return with_adapter(parameters, at, adapters_, x, y);
}

at::Tensor Llama::attention(const nn::Parameters& parameters, const Block& block, const Places& places,
                            const at::Tensor& x_BTH) const {
  const std::int64_t batch = x_BTH.size(0), length = x_BTH.size(1);
  const auto heads = [&](const Linear& weight, int norm) {
    const at::Tensor x_BTND = linear(parameters, weight, x_BTH).view({batch, length, -1, config_.head_dim});
    return (norm == kNoParam ? x_BTND : rms_norm(x_BTND, parameters.leaf(norm))).transpose(1, 2);
  };
  const at::Tensor q_BNTD = nn::rotate(heads(block.q, block.q_norm), places.cos, places.sin);
  at::Tensor k_BKTD = nn::rotate(heads(block.k, block.k_norm), places.cos, places.sin);
  at::Tensor v_BKTD = heads(block.v, kNoParam);
  if (places.cache != nullptr) std::tie(k_BKTD, v_BKTD) = places.cache->extend(block.index, k_BKTD, v_BKTD);
  return linear(parameters, block.o, attend(q_BNTD, k_BKTD, v_BKTD, block.windowed ? places.window_mask : places.mask));
}

at::Tensor Llama::block_forward(const nn::Parameters& parameters, const Block& block, const Places& places,
                                const at::Tensor& x_BTH) const {
  const at::Tensor attended =
      x_BTH + attention(parameters, block, places, rms_norm(x_BTH, parameters.leaf(block.input_norm)));
  const at::Tensor normed = rms_norm(attended, parameters.leaf(block.post_norm));
  const at::Tensor gated = nn::swiglu(linear(parameters, block.gate, normed), linear(parameters, block.up, normed));
  return attended + linear(parameters, block.down, gated);
}

at::Tensor Llama::last_logits(const nn::Parameters& parameters, nn::UnitEvents* events,
                              std::span<const std::int64_t> ids, KeyValueCache& cache) {
  const auto length = static_cast<std::int64_t>(ids.size());
  const std::int64_t past = cache.keep(ids, formats::rope_inverse_frequencies(config_, length));
  Places places = *places_of(length - past, {}, parameters.leaf(embed_).options(), past);
  places.cache = &cache;
  const at::Tensor logits =
      run(parameters, events, unread(ids, past), std::make_shared<const Places>(std::move(places)), linear_head);
  cache.hold(ids);
  return logits[0][0];
}

at::Tensor Llama::run(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& ids_of_host,
                      const std::shared_ptr<const Places>& places, const Head& head) {
  const at::Tensor input_ids = ids_of_host.to(parameters.leaf(embed_).device());
  at::Tensor x_BTH = nn::run_unit(events, embed_unit_, input_ids,
                                  [&](const at::Tensor& ids) { return at::embedding(parameters.leaf(embed_), ids); });
  x_BTH = nn::run_blocks(recompute_, static_cast<std::int64_t>(blocks_.size()), x_BTH, [&](std::int64_t i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    return nn::BlockOfModel{events, block.unit, block.name, [this, &parameters, &block, places](const at::Tensor& x) {
                              return block_forward(parameters, block, *places, x);
                            }};
  });
  if (places->cache != nullptr) x_BTH = x_BTH.narrow(1, x_BTH.size(1) - 1, 1);
  const bool tied = head_ == embed_;
  x_BTH = nn::run_unit(events, head_unit_, x_BTH, [&](const at::Tensor& x) {
    const at::Tensor normed = rms_norm(x, parameters.leaf(norm_));
    return tied ? normed : head(normed, parameters.leaf(head_));
  });
  if (!tied) return x_BTH;
  return nn::run_unit(events, embed_unit_, x_BTH,
                      [&](const at::Tensor& x) { return head(x, parameters.leaf(embed_, 1)); });
}

at::Tensor Llama::logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                         const at::Tensor& positions) {
  return run(parameters, events, input_ids, places_of(input_ids.size(1), positions, parameters.leaf(embed_).options()),
             linear_head);
}

at::Tensor Llama::loss_sum(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                           const at::Tensor& positions, const at::Tensor& labels) {
  if (labels.numel() == 0 || !nn::has_kernels(parameters.leaf(head_)))
    return Model::loss_sum(parameters, events, input_ids, positions, labels);
  return run(parameters, events, input_ids, places_of(input_ids.size(1), positions, parameters.leaf(embed_).options()),
             [&](const at::Tensor& x, const at::Tensor& weight) {
               return nn::linear_cross_entropy(x.flatten(0, -2), weight, next_labels(labels));
             });
}

}  // namespace intarsia::models::llama
