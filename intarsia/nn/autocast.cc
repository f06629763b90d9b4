#include "intarsia/nn/autocast.h"

#include <ATen/autocast_mode.h>

#include "intarsia/tensor/dtype_map.h"

namespace intarsia::nn {

AutocastScope::AutocastScope(std::optional<DType> dtype, c10::DeviceType device)
    : active_(dtype.has_value()), device_(device) {
  if (!active_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  cache_before_ = at::autocast::is_autocast_cache_enabled();
  dtype_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_, tensor::scalar_type(*dtype));
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cache_before_);
}

}  // namespace intarsia::nn
