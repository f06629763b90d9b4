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
  // Elements 2k and 2k + 1 share a draw: whole pairs at once cost half.
  std::int64_t i = range.begin;
  if (i < range.end && i % 2 != 0) {
    out[0] = std * philox_normal(key, static_cast<std::uint64_t>(i));
    ++i;
  }
  for (; i + 1 < range.end; i += 2) {
    const auto [even, odd] = philox_normal_pair(key, static_cast<std::uint64_t>(i / 2));
    out[i - range.begin] = std * even;
    out[i + 1 - range.begin] = std * odd;
  }
  if (i < range.end) out[i - range.begin] = std * philox_normal(key, static_cast<std::uint64_t>(i));
}

}  // namespace intarsia::plan
