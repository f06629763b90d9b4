// Ghosts of nn/functions.h and nn/linear_cross_entropy.h.
#include "intarsia/plan/logit_tiles.h"
#include "intarsia/plan/memory/ghost.h"

namespace intarsia::plan {

Ghost GhostTape::rms_norm(const Ghost& x, const Ghost& weight, std::int64_t width) {
  Ghost out = empty(x.numel, x.dtype);
  const Ghost scale = empty(x.numel / width, DType::kF32);
  elementwise(out, 2);
  return record(std::move(out), {x, weight},
                [this, x = saved(x), scale, width, x_needs = x.needs_grad(),
                 weight_needs = weight.needs_grad()](const Ghost& grad) {
                  Gradients grads(2);
                  if (weight_needs) {
                    const Holding before = set_holding(Holding::kWeightGrads);
                    grads[1] = empty(width, grad.dtype);
                    set_holding(before);
                    elementwise(grad, 2);
                  }
                  if (x_needs) {
                    grads[0] = empty(x.numel, grad.dtype);
                    elementwise(grad, 3);
                  }
                  return grads;
                });
}

Ghost GhostTape::rotate(const Ghost& x) {
  Ghost out = empty(x.numel, x.dtype);
  elementwise(out, 2);
  return record(std::move(out), {x}, [this](const Ghost& grad) {
    elementwise(grad, 2);
    return Gradients{empty(grad.numel, grad.dtype)};
  });
}

Ghost GhostTape::swiglu(const Ghost& gate, const Ghost& up) {
  Ghost out = empty(gate.numel, gate.dtype);
  elementwise(out, 3);
  return record(std::move(out), {gate, up}, [this, gate = saved(gate), up = saved(up)](const Ghost& grad) {
    elementwise(grad, 5);
    return Gradients{empty(gate.numel, grad.dtype), empty(up.numel, grad.dtype)};
  });
}

Ghost GhostTape::linear_cross_entropy(const Ghost& x, const Ghost& weight, std::int64_t rows, std::int64_t vocab) {
  const std::int64_t width = x.numel / rows,
                     held = logits_held(rows, vocab, static_cast<std::int64_t>(dtype_size(x.dtype)));
  const bool kept = held == rows * vocab;
  const Ghost targets = empty(rows, DType::kI64), logits = empty(held, x.dtype);
  const Ghost of_rows = empty(3 * rows, DType::kF32);  // maximum, sum, logit of the target
  const double flops = 2.0 * static_cast<double>(x.numel) * static_cast<double>(vocab);
  const auto bytes = static_cast<double>(x.nbytes() + weight.nbytes() + logits.nbytes());
  count(Work::Kind::kMatmul, flops, bytes);
  const double passes = static_cast<double>(rows * vocab) / static_cast<double>(held);
  elementwise(logits, 2 * passes);
  if (!grad_enabled_) return empty(1, DType::kF32);
  if (!kept) count(Work::Kind::kMatmul, flops, bytes);
  elementwise(logits, 2 * passes);
  Ghost x_grad, weight_grad;
  if (x.needs_grad()) {
    x_grad = empty(x.numel, DType::kF32);
    count(Work::Kind::kMatmul, flops, bytes);
  }
  if (weight.needs_grad()) {
    const Holding before = set_holding(Holding::kWeightGrads);
    weight_grad = empty(weight.numel, weight.dtype);
    set_holding(before);
    count(Work::Kind::kMatmul, flops, bytes);
  }
  Ghost sum;
  if (weight.needs_grad() && rows > kLogitTileRows && x.dtype != DType::kF32)
    sum = empty(kLogitTileColumns * width, DType::kF32);
  if (x.needs_grad() && x.dtype != DType::kF32) x_grad = empty(x.numel, x.dtype);
  return record(empty(1, DType::kF32), {x, weight}, [x_grad, weight_grad](const Ghost&) {
    return Gradients{x_grad, weight_grad};
  });
}

}  // namespace intarsia::plan
