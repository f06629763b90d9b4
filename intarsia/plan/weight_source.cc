#include "intarsia/plan/weight_source.h"

#include <algorithm>

#include "intarsia/base/philox.h"

namespace intarsia::plan {

void RandomWeights::read(const ParamSpec& param, Range range, float* out) const {
  if (param.init != Init::kNormal) {
    std::fill(out, out + range.size(), param.init == Init::kOnes ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t key = philox_key(seed_, "init:" + param.init_key());
  const auto std = static_cast<float>(param.init_std);
  for (std::int64_t i = range.begin; i < range.end; ++i)
    out[i - range.begin] = std * philox_normal(key, static_cast<std::uint64_t>(i));
}

}  // namespace intarsia::plan
