// Shape suffixes: B samples, T tokens, H hidden, N heads, D head_dim.
#include "intarsia/models/gpt2/gpt2.h"

#include <ATen/ATen.h>

#include <tuple>

#include "intarsia/models/attention.h"
#include "intarsia/models/spec_index.h"
#include "intarsia/nn/functions.h"
#include "intarsia/nn/linear_cross_entropy.h"
#include "intarsia/nn/recompute/blocks.h"
#include "intarsia/nn/unit.h"

namespace intarsia::models::gpt2 {
namespace {

// transformers' Conv1D: a linear layer whose weight is stored [in, out].
at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(1);
  return at::addmm(bias, x.reshape({-1, x.size(-1)}), weight).view(shape);
}

}  // namespace

Gpt2::Gpt2(const formats::HfConfig& config, const plan::ModelSpec& spec, const plan::RecomputePlan& recompute,
           AdapterRule adapters)
    : config_(config), recompute_(recompute), adapters_(std::move(adapters)) {
  const std::string& prefix = config.tensor_prefix;
  embed_ = param_of(spec, prefix + "wte.weight");
  positions_ = param_of(spec, prefix + "wpe.weight");
  embed_unit_ = unit_of(spec, embed_);
  norm_ = linear_of(spec, prefix + "ln_f");
  head_unit_ = unit_of(spec, norm_.weight);
  head_ = param_of(spec, "lm_head.weight");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = prefix + "h." + std::to_string(i);
    Block block{};
    block.index = static_cast<std::size_t>(i);
    block.norm_1 = linear_of(spec, name + ".ln_1");
    block.attention = linear_of(spec, name + ".attn.c_attn");
    block.attention_out = linear_of(spec, name + ".attn.c_proj");
    block.norm_2 = linear_of(spec, name + ".ln_2");
    block.up = linear_of(spec, name + ".mlp.c_fc");
    block.down = linear_of(spec, name + ".mlp.c_proj");
    block.unit = unit_of(spec, block.norm_1.weight);
    block.name = name;
    blocks_.push_back(block);
  }
}

at::Tensor Gpt2::layer_norm(const nn::Parameters& parameters, const Linear& at, const at::Tensor& x) const {
  return at::layer_norm(x, {config_.hidden_size}, parameters.leaf(at.weight), parameters.leaf(at.bias),
                        config_.norm_eps);
}

at::Tensor Gpt2::block_forward(const nn::Parameters& parameters, const Block& block, const at::Tensor& mask,
                               KeyValueCache* cache, const at::Tensor& x_BTH) const {
  const std::int64_t batch = x_BTH.size(0), length = x_BTH.size(1);
  const auto apply = [&](const Linear& at, const at::Tensor& x) {
    return with_adapter(parameters, at, adapters_, x, conv1d(x, parameters.leaf(at.weight), parameters.leaf(at.bias)));
  };
  const at::Tensor mixed = apply(block.attention, layer_norm(parameters, block.norm_1, x_BTH));
  const auto qkv = mixed.split(config_.hidden_size, -1);
  const auto heads = [&](const at::Tensor& part) {
    return part.view({batch, length, -1, config_.head_dim}).transpose(1, 2);
  };
  at::Tensor k = heads(qkv[1]), v = heads(qkv[2]);
  if (cache != nullptr) std::tie(k, v) = cache->extend(block.index, k, v);
  const at::Tensor attended = x_BTH + apply(block.attention_out, attend(heads(qkv[0]), k, v, mask));
  const at::Tensor hidden = apply(block.up, layer_norm(parameters, block.norm_2, attended));
  return attended + apply(block.down, at::gelu(hidden, "tanh"));
}

at::Tensor Gpt2::last_logits(const nn::Parameters& parameters, nn::UnitEvents* events,
                             std::span<const std::int64_t> ids, KeyValueCache& cache) {
  const auto length = static_cast<std::int64_t>(ids.size());
  const std::int64_t past = cache.keep(ids, {});
  const at::Tensor mask = attention_mask(length - past, 0, {}, parameters.leaf(embed_).scalar_type(), past);
  const at::Tensor logits =
      run(parameters, events, unread(ids, past), at::arange(past, length, at::kLong), mask, linear_head, &cache);
  cache.hold(ids);
  return logits[0][0];
}

at::Tensor Gpt2::run(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& ids_of_host,
                     const at::Tensor& places_of_host, const at::Tensor& mask_of_host, const Head& head,
                     KeyValueCache* cache) {
  const c10::Device device = parameters.leaf(embed_).device();
  const at::Tensor input_ids = ids_of_host.to(device), places = places_of_host.to(device);
  const at::Tensor mask = mask_of_host.defined() ? mask_of_host.to(device) : mask_of_host;
  at::Tensor x_BTH = nn::run_unit(events, embed_unit_, input_ids, [&](const at::Tensor& ids) {
    return at::embedding(parameters.leaf(embed_), ids) + at::embedding(parameters.leaf(positions_), places);
  });
  x_BTH = nn::run_blocks(recompute_, static_cast<std::int64_t>(blocks_.size()), x_BTH, [&](std::int64_t i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    return nn::BlockOfModel{events, block.unit, block.name,
                            [this, &parameters, &block, mask, cache](const at::Tensor& x) {
                              return block_forward(parameters, block, mask, cache, x);
                            }};
  });
  if (cache != nullptr) x_BTH = x_BTH.narrow(1, x_BTH.size(1) - 1, 1);
  const bool tied = head_ == embed_;
  x_BTH = nn::run_unit(events, head_unit_, x_BTH, [&](const at::Tensor& x) {
    const at::Tensor normed = layer_norm(parameters, norm_, x);
    return tied ? normed : head(normed, parameters.leaf(head_));
  });
  if (!tied) return x_BTH;
  return nn::run_unit(events, embed_unit_, x_BTH,
                      [&](const at::Tensor& x) { return head(x, parameters.leaf(embed_, 1)); });
}

at::Tensor Gpt2::run_whole(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                           const at::Tensor& positions, const Head& head) {
  const std::int64_t length = input_ids.size(1);
  return run(parameters, events, input_ids, positions.defined() ? positions : at::arange(length, at::kLong),
             attention_mask(length, 0, positions, parameters.leaf(embed_).scalar_type()), head, nullptr);
}

at::Tensor Gpt2::logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                        const at::Tensor& positions) {
  return run_whole(parameters, events, input_ids, positions, linear_head);
}

at::Tensor Gpt2::loss_sum(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                          const at::Tensor& positions, const at::Tensor& labels) {
  if (labels.numel() == 0 || !nn::has_kernels(parameters.leaf(head_)))
    return Model::loss_sum(parameters, events, input_ids, positions, labels);
  return run_whole(parameters, events, input_ids, positions, [&](const at::Tensor& x, const at::Tensor& weight) {
    return nn::linear_cross_entropy(x.flatten(0, -2), weight, next_labels(labels));
  });
}

}  // namespace intarsia::models::gpt2
