// The events of units: order, number, and what they see, with and without recomputation.
#include "intarsia/nn/unit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "intarsia/base/error.h"
#include "intarsia/nn/recompute/recompute.h"

namespace intarsia::nn {
namespace {

class Log final : public UnitEvents {
 public:
  void pre_forward(int unit) override { add("f", unit); }
  void post_forward(int unit, bool needs_backward) override { add(needs_backward ? "F" : "E", unit); }
  void pre_backward(int unit) override { add("b", unit); }
  void post_backward(int unit) override { add("B", unit); }
  std::string text;

 private:
  void add(const char* event, int unit) { text += concat(event, unit, " "); }
};

const UnitForward kSine = [](const at::Tensor& x) { return x.sin().sin(); };

at::Tensor leaf() { return at::ones({3}).requires_grad_(true); }

TEST(Unit, EventsNestInBackwardAsInForward) {
  Log log;
  const at::Tensor out = run_unit(&log, 1, run_unit(&log, 0, leaf(), kSine), kSine);
  torch::autograd::backward({out.sum()}, {});
  EXPECT_EQ(log.text, "f0 F0 f1 F1 b1 B1 b0 B0 ");
}

TEST(Unit, ARecomputedUnitHasTheSameEvents) {
  Log log;
  const UnitForward again = recomputed(kSine, {.name = "unit"});
  const at::Tensor out = run_unit(&log, 1, run_unit(&log, 0, leaf(), again), again);
  torch::autograd::backward({out.sum()}, {});
  EXPECT_EQ(log.text, "f0 F0 f1 F1 b1 B1 b0 B0 ");
}

TEST(Unit, UnitsInsideARecomputedPieceEnterAgainInBackward) {
  Log log;
  const UnitForward piece = recomputed(
      [&](const at::Tensor& x) { return run_unit(&log, 1, run_unit(&log, 0, x, kSine), kSine); }, {.name = "piece"});
  torch::autograd::backward({piece(leaf()).sum()}, {});
  EXPECT_EQ(log.text, "f0 F0 f1 F1 b1 f0 E0 f1 E1 B1 b0 B0 ");
}

TEST(Unit, SeveralInputsAndOutputsBeginAndEndBackwardOnce) {
  Log log;
  const at::Tensor a = leaf(), b = leaf();
  const TensorList out = run_unit(&log, 0, TensorList{a, at::ones({3}, at::kLong), {}, b}, [](const TensorList& in) {
    return TensorList{in[0] * in[3], in[3].sin(), in[1] + 1, {}};
  });
  const at::Tensor later = run_unit(&log, 1, out[1], kSine);
  torch::autograd::backward({(out[0] + later).sum()}, {});
  EXPECT_EQ(log.text, "f0 F0 f1 F1 b1 B1 b0 B0 ");
  EXPECT_TRUE(a.grad().defined() && b.grad().defined());
}

TEST(Unit, AForwardThatThrowsHasEnded) {
  Log log;
  EXPECT_THROW(run_unit(&log, 4, leaf(), [](const at::Tensor&) -> at::Tensor { fail(ErrorKind::kData, "no"); }), Error);
  EXPECT_EQ(log.text, "f4 E4 ");
}

TEST(Unit, PassesWithoutGradientsHaveNoBackward) {
  const at::NoGradGuard no_grad;
  Log log;
  run_unit(&log, 0, leaf(), recomputed(kSine, {.name = "unit"}));
  EXPECT_EQ(log.text, "f0 E0 ");
}

}  // namespace
}  // namespace intarsia::nn
