// Autocast for a while: operations choose the type that they compute in, parameters keep theirs.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "intarsia/base/dtype.h"

namespace intarsia::nn {

// While it lives, matrix products, convolutions and attention on `device` from the calling thread compute in `dtype`
// (kBF16 or kF16) and operations that need range in fp32, as at::autocast decides; nothing when empty. Not for the
// backward: that follows the types of the forward. The cache of casts is off: it would hold 16-bit copies of whole
// parameters, also after they were updated. Memory: a 16-bit copy of a weight while a graph needs it. Source:
// Micikevicius et al., "Mixed precision training" (arXiv 1710.03740), as torch.autocast does it.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<DType> dtype, c10::DeviceType device = c10::DeviceType::CPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  c10::DeviceType device_;
  bool enabled_before_ = false;
  bool cache_before_ = false;
  c10::ScalarType dtype_before_{};
};

}  // namespace intarsia::nn
