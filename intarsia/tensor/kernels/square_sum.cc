#include "intarsia/tensor/kernels/square_sum.h"

#include <algorithm>
#include <array>

namespace intarsia::tensor {
namespace {

constexpr std::int64_t kBlock = 1024;
constexpr std::int64_t kLanes = 16;

// Sixteen fixed lanes, so that the order is the same in every instruction set.
double block_sum(const float* data, std::int64_t numel) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= numel; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(data[i + lane]);
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  for (std::int64_t lane = 0; i < numel; ++i, ++lane) {
    const auto value = static_cast<double>(data[i]);
    lanes[static_cast<std::size_t>(lane)] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double square_sum(const float* data, std::int64_t numel) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < numel; begin += kBlock)
    sum += block_sum(data + begin, std::min(kBlock, numel - begin));
  return sum;
}

}  // namespace intarsia::tensor
