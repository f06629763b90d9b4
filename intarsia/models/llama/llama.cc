// Shape suffixes: B samples, T tokens, H hidden, N heads, K key/value heads, D head_dim.
#include "intarsia/models/llama/llama.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/nn/recompute/blocks.h"
#include "intarsia/nn/unit.h"

namespace intarsia::models::llama {
namespace {

int param(const plan::ModelSpec& spec, const std::string& name) {
  const std::optional<int> index = spec.find(name);
  INTARSIA_INVARIANT(index.has_value(), "the model spec has no ", name);
  return *index;
}

int unit_of(const plan::ModelSpec& spec, int index) { return spec.params[static_cast<std::size_t>(index)].unit; }

// Turns pairs (j, j + D/2) of each head by their position's angle. x_BNTD, cos_TD, sin_TD in compute dtype.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x * cos + turned * sin;
}

}  // namespace

Llama::Llama(const formats::HfConfig& config, const plan::ModelSpec& spec, const plan::RecomputePlan& recompute)
    : config_(config),
      recompute_(recompute),
      embed_(param(spec, "model.embed_tokens.weight")),
      embed_unit_(unit_of(spec, embed_)),
      norm_(param(spec, "model.norm.weight")),
      head_unit_(unit_of(spec, norm_)),
      head_(param(spec, "lm_head.weight")) {
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const auto at = [&](const char* name) { return param(spec, prefix + name + ".weight"); };
    Block block{};
    block.input_norm = at("input_layernorm");
    block.unit = unit_of(spec, block.input_norm);
    block.name = spec.units[static_cast<std::size_t>(block.unit)].name;
    block.q = at("self_attn.q_proj");
    block.k = at("self_attn.k_proj");
    block.v = at("self_attn.v_proj");
    block.o = at("self_attn.o_proj");
    block.post_norm = at("post_attention_layernorm");
    block.gate = at("mlp.gate_proj");
    block.up = at("mlp.up_proj");
    block.down = at("mlp.down_proj");
    blocks_.push_back(block);
  }
  const std::vector<float> frequencies = formats::rope_inverse_frequencies(config);
  inverse_frequencies_ = at::tensor(frequencies, at::kFloat);
}

void Llama::prepare_rotation(std::int64_t length, at::ScalarType type) {
  if (cos_TD_.defined() && cos_TD_.size(0) >= length && cos_TD_.scalar_type() == type) return;
  const at::NoGradGuard no_grad;
  const at::Tensor angles = at::outer(at::arange(length, at::kFloat), inverse_frequencies_);
  const at::Tensor both = at::cat({angles, angles}, -1);
  cos_TD_ = both.cos().to(type);
  sin_TD_ = both.sin().to(type);
}

at::Tensor Llama::rms_norm(const at::Tensor& x, const at::Tensor& weight) const {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.pow(2).mean(-1, true) + config_.rms_norm_eps);
  return weight * (wide * scale).to(x.scalar_type());
}

at::Tensor Llama::attention(const nn::Parameters& parameters, const Block& block, const at::Tensor& x_BTH) const {
  const std::int64_t batch = x_BTH.size(0), length = x_BTH.size(1), head_dim = config_.head_dim;
  const auto heads = [&](int weight) {
    return at::linear(x_BTH, parameters.leaf(weight)).view({batch, length, -1, head_dim}).transpose(1, 2);
  };
  const at::Tensor cos = cos_TD_.narrow(0, 0, length), sin = sin_TD_.narrow(0, 0, length);
  const at::Tensor q_BNTD = rotate(heads(block.q), cos, sin);
  const at::Tensor k_BKTD = rotate(heads(block.k), cos, sin);
  const at::Tensor v_BKTD = heads(block.v);
  const bool grouped = config_.num_key_value_heads != config_.num_attention_heads;
  const at::Tensor mixed_BNTD = at::scaled_dot_product_attention(q_BNTD, k_BKTD, v_BKTD, {}, 0.0, true,
                                                                 1 / std::sqrt(static_cast<double>(head_dim)), grouped);
  return at::linear(mixed_BNTD.transpose(1, 2).reshape({batch, length, -1}), parameters.leaf(block.o));
}

at::Tensor Llama::block_forward(const nn::Parameters& parameters, const Block& block, const at::Tensor& x_BTH) const {
  const at::Tensor attended = x_BTH + attention(parameters, block, rms_norm(x_BTH, parameters.leaf(block.input_norm)));
  const at::Tensor normed = rms_norm(attended, parameters.leaf(block.post_norm));
  const at::Tensor gated =
      at::silu(at::linear(normed, parameters.leaf(block.gate))) * at::linear(normed, parameters.leaf(block.up));
  return attended + at::linear(gated, parameters.leaf(block.down));
}

at::Tensor Llama::logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids) {
  prepare_rotation(input_ids.size(1), parameters.leaf(embed_).scalar_type());
  at::Tensor x_BTH = nn::run_unit(events, embed_unit_, input_ids,
                                  [&](const at::Tensor& ids) { return at::embedding(parameters.leaf(embed_), ids); });
  x_BTH = nn::run_blocks(recompute_, static_cast<std::int64_t>(blocks_.size()), x_BTH, [&](std::int64_t i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    return nn::BlockOfModel{events, block.unit, block.name, [this, &parameters, &block](const at::Tensor& x) {
                              return block_forward(parameters, block, x);
                            }};
  });
  const bool tied = head_ == embed_;
  x_BTH = nn::run_unit(events, head_unit_, x_BTH, [&](const at::Tensor& x) {
    const at::Tensor normed = rms_norm(x, parameters.leaf(norm_));
    return tied ? normed : at::linear(normed, parameters.leaf(head_));
  });
  if (!tied) return x_BTH;
  return nn::run_unit(events, embed_unit_, x_BTH,
                      [&](const at::Tensor& x) { return at::linear(x, parameters.leaf(embed_, 1)); });
}

}  // namespace intarsia::models::llama
