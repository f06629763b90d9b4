#include "intarsia/models/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"

namespace intarsia::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Draw {
  std::uint64_t key = 0;
  double probability = 0;
  std::vector<std::int64_t> places;
};

// What stays, [B, T, in] bool on the CPU. Rows of `in` elements begin with a draw of their own, so that the choice does
// not depend on T.
at::Tensor kept(const Draw& draw, at::IntArrayRef shape) {
  at::Tensor mask = at::empty(shape, at::kBool);
  auto* const out = mask.mutable_data_ptr<bool>();
  const std::int64_t length = shape[1], width = shape[2], draws = (width + 3) / 4;
  const auto limit = static_cast<std::uint64_t>(std::llround(draw.probability * 0x1p32));
  at::parallel_for(0, shape[0] * length, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto place = static_cast<std::uint64_t>(draw.places[static_cast<std::size_t>(row / length)]);
      const auto first = static_cast<std::uint64_t>(row % length * draws);
      bool* const to = out + row * width;
      for (std::int64_t i = 0; i < width; i += 4) {
        const auto bits = philox(draw.key, first + static_cast<std::uint64_t>(i / 4), place);
        for (std::int64_t j = 0; j < std::min<std::int64_t>(4, width - i); ++j)
          to[i + j] = bits[static_cast<std::size_t>(j)] >= limit;
      }
    }
  });
  return mask;
}

at::Tensor dropped(const Draw& draw, const at::Tensor& x) {
  const at::Tensor mask = kept(draw, x.sizes()).to(x.device());
  return x.mul(1 / (1 - draw.probability)).mul_(mask);
}

// Saves no tensors.
class DropOut : public torch::autograd::Function<DropOut> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Draw& draw) {
    context->saved_data["key"] = static_cast<std::int64_t>(draw.key);
    context->saved_data["probability"] = draw.probability;
    context->saved_data["places"] = draw.places;
    return dropped(draw, x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Draw draw{static_cast<std::uint64_t>(context->saved_data["key"].toInt()),
                    context->saved_data["probability"].toDouble(), context->saved_data["places"].toIntVector()};
    return {dropped(draw, gradients[0]), at::Tensor()};
  }
};

}  // namespace

at::Tensor drop_out(const at::Tensor& x, std::uint64_t key, double probability, std::span<const std::int64_t> places) {
  INTARSIA_INVARIANT(x.dim() == 3 && x.size(0) == static_cast<std::int64_t>(places.size()), "dropout of ", x.dim(),
                     " dims with ", places.size(), " places of samples");
  return DropOut::apply(x, Draw{key, probability, {places.begin(), places.end()}});
}

}  // namespace intarsia::models
