#include "intarsia/nn/autocast.h"

#include <ATen/autocast_mode.h>

#include "intarsia/tensor/dtype_map.h"

namespace intarsia::nn {

AutocastScope::AutocastScope(std::optional<DType> dtype) : active_(dtype.has_value()) {
  if (!active_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(at::kCPU);
  cache_before_ = at::autocast::is_autocast_cache_enabled();
  dtype_before_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_dtype(at::kCPU, tensor::scalar_type(*dtype));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::set_autocast_enabled(at::kCPU, enabled_before_);
  at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cache_before_);
}

}  // namespace intarsia::nn
