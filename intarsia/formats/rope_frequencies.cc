#include <algorithm>
#include <cmath>
#include <numbers>

#include "intarsia/formats/hf_config.h"

namespace intarsia::formats {
namespace {

std::vector<float> plain(double base, std::int64_t head_dim) {
  std::vector<float> result;
  for (std::int64_t j = 0; 2 * j < head_dim; ++j)
    result.push_back(1.0F /
                     std::pow(static_cast<float>(base), static_cast<float>(2 * j) / static_cast<float>(head_dim)));
  return result;
}

// A longer sequence turns with a larger base.
double dynamic_base(const HfConfig& config, std::int64_t length) {
  const auto longest = static_cast<double>(config.max_position_embeddings);
  const auto seen = std::max(static_cast<double>(length), longest);
  const double factor = config.rope_scaling.factor, dim = static_cast<double>(config.head_dim);
  return config.rope_theta * std::pow(factor * seen / longest - (factor - 1), dim / (dim - 2));
}

void scale_llama3(const RopeScaling& rope, std::vector<float>& frequencies) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto context = static_cast<float>(rope.original_max_position_embeddings);
  constexpr auto kTwoPi = static_cast<float>(2 * std::numbers::pi);
  for (float& frequency : frequencies) {
    const float wavelength = kTwoPi / frequency;
    if (wavelength < context / high) continue;  // short waves stay
    if (wavelength > context / low) {
      frequency = frequency / factor;
    } else {
      const float smooth = (context / wavelength - low) / (high - low);
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

// Frequencies that turn often within the original length stay, those that do not turn once are divided by the factor,
// and between them a ramp blends both.
void scale_yarn(const HfConfig& config, std::vector<float>& frequencies) {
  const RopeScaling& rope = config.rope_scaling;
  const auto dim = static_cast<double>(config.head_dim);
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  const auto dim_of_turns = [&](double turns) {
    return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.rope_theta));
  };
  double low = dim_of_turns(rope.beta_fast), high = dim_of_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const auto factor = static_cast<float>(rope.factor);
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    const float place = (static_cast<float>(j) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float divided = std::clamp(place, 0.0F, 1.0F);
    frequencies[j] = frequencies[j] / factor * divided + frequencies[j] * (1 - divided);
  }
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const HfConfig& config, std::int64_t length) {
  const RopeScaling& rope = config.rope_scaling;
  const double base = rope.type == RopeType::kDynamic ? dynamic_base(config, length) : config.rope_theta;
  std::vector<float> result = plain(base, config.head_dim);
  switch (rope.type) {
    case RopeType::kDefault:
    case RopeType::kDynamic:
      break;
    case RopeType::kLinear:
      for (float& frequency : result) frequency /= static_cast<float>(rope.factor);
      break;
    case RopeType::kYarn:
      scale_yarn(config, result);
      break;
    case RopeType::kLlama3:
      scale_llama3(rope, result);
      break;
  }
  return result;
}

}  // namespace intarsia::formats
