#include <cmath>
#include <numbers>

#include "intarsia/formats/hf_config.h"

namespace intarsia::formats {

std::vector<float> rope_inverse_frequencies(const HfConfig& config) {
  const auto dim = static_cast<float>(config.head_dim);
  std::vector<float> result;
  for (std::int64_t j = 0; 2 * j < config.head_dim; ++j)
    result.push_back(1.0F / std::pow(static_cast<float>(config.rope_theta), static_cast<float>(2 * j) / dim));
  const RopeScaling& rope = config.rope_scaling;
  if (rope.type == RopeType::kDefault) return result;

  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto context = static_cast<float>(rope.original_max_position_embeddings);
  constexpr auto kTwoPi = static_cast<float>(2 * std::numbers::pi);
  for (float& frequency : result) {
    const float wavelength = kTwoPi / frequency;
    if (wavelength < context / high) continue;  // short waves stay
    if (wavelength > context / low) {
      frequency = frequency / factor;
    } else {
      const float smooth = (context / wavelength - low) / (high - low);
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return result;
}

}  // namespace intarsia::formats
