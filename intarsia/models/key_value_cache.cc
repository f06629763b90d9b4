#include "intarsia/models/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace intarsia::models {
namespace {

// `more` behind the first `kept` tokens of `store`, which grows by doubling.
at::Tensor append(at::Tensor& store, std::int64_t kept, const at::Tensor& more) {
  const std::int64_t length = kept + more.size(2);
  if (!store.defined() || store.size(2) < length) {
    std::vector<std::int64_t> shape = more.sizes().vec();
    shape[2] = 2 * length;
    const at::Tensor larger = at::empty(shape, more.options());
    if (kept > 0) larger.narrow(2, 0, kept).copy_(store.narrow(2, 0, kept));
    store = larger;
  }
  store.narrow(2, kept, more.size(2)).copy_(more);
  return store.narrow(2, 0, length);
}

}  // namespace

std::int64_t KeyValueCache::keep(std::span<const std::int64_t> ids, std::vector<float> frequencies) {
  if (frequencies != frequencies_) ids_.clear();
  frequencies_ = std::move(frequencies);
  // The last token is run again at the least: its logits are asked for.
  const auto common = std::ranges::mismatch(ids_, ids.first(ids.size() - 1)).in1 - ids_.begin();
  ids_.resize(static_cast<std::size_t>(common));
  return common;
}

std::pair<at::Tensor, at::Tensor> KeyValueCache::extend(std::size_t block, const at::Tensor& k_BKTD,
                                                        const at::Tensor& v_BKTD) {
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  auto& [keys, values] = blocks_[block];
  const auto kept = static_cast<std::int64_t>(ids_.size());
  return {append(keys, kept, k_BKTD), append(values, kept, v_BKTD)};
}

at::Tensor unread(std::span<const std::int64_t> ids, std::int64_t kept) {
  const auto rest = ids.subspan(static_cast<std::size_t>(kept));
  return at::tensor(at::ArrayRef<std::int64_t>(rest.data(), rest.size()), at::kLong).unsqueeze(0);
}

}  // namespace intarsia::models
