#include "intarsia/models/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <optional>

#include "intarsia/nn/attention.h"

namespace intarsia::models {

at::Tensor attention_mask(std::int64_t length, std::int64_t window, const at::Tensor& positions, at::ScalarType type,
                          std::int64_t past) {
  const bool windowed = window > 0 && window < past + length;
  const bool behind_others = past > 0 && length > 1;  // what sdpa calls causal begins at the first key
  if (!windowed && !behind_others && !positions.defined()) return {};
  const at::NoGradGuard no_grad;
  at::Tensor seen = at::ones({length, past + length}, at::kBool).tril_(past);
  if (windowed) seen = seen.triu_(past + 1 - window);
  if (positions.defined()) {
    const at::Tensor document_BT = positions.eq(0).cumsum(1);
    seen = document_BT.unsqueeze(2).eq(document_BT.unsqueeze(1)).logical_and_(seen).unsqueeze(1);
  }
  return at::zeros(seen.sizes(), at::TensorOptions().dtype(type))
      .masked_fill_(seen.logical_not_(), -std::numeric_limits<double>::infinity());
}

at::Tensor attend(const at::Tensor& q_BNTD, const at::Tensor& k_BKTD, const at::Tensor& v_BKTD,
                  const at::Tensor& mask) {
  const std::int64_t batch = q_BNTD.size(0), length = q_BNTD.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(q_BNTD.size(3)));
  const bool grouped = q_BNTD.size(1) != k_BKTD.size(1);
  const std::optional<at::Tensor> added = mask.defined() ? std::optional(mask) : std::nullopt;
  const bool causal = !added && length > 1;
  const at::Tensor mixed_BNTD =
      causal && nn::has_causal_attention(q_BNTD, k_BKTD, v_BKTD)
          ? nn::causal_attention(q_BNTD, k_BKTD, v_BKTD)
          : at::scaled_dot_product_attention(q_BNTD, k_BKTD, v_BKTD, added, 0.0, causal, scale, grouped);
  return mixed_BNTD.transpose(1, 2).reshape({batch, length, -1});
}

}  // namespace intarsia::models
