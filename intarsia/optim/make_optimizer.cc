#include "intarsia/base/error.h"
#include "intarsia/optim/adafactor.h"
#include "intarsia/optim/elementwise.h"
#include "intarsia/optim/lamb.h"
#include "intarsia/optim/muon.h"

namespace intarsia::optim {

std::unique_ptr<Optimizer> make_optimizer(const plan::RunPlan& plan, std::vector<shard::FlatState>& states,
                                          const comm::DataAxes& axes) {
  using plan::OptimizerKind;
  using plan::TensorKind;
  const auto elementwise = [&](std::vector<TensorKind> kinds, ElementwiseRule rule, DeviceRule on_device = nullptr) {
    return std::make_unique<Elementwise>(plan, states, axes, std::move(kinds), rule, on_device);
  };
  switch (plan.optimizer.kind) {
    case OptimizerKind::kAdam:
      return elementwise({TensorKind::kExpAvg, TensorKind::kExpAvgSq}, update_adam, update_adam_on_device);
    case OptimizerKind::kSgd:
      if (plan.optimizer.momentum == 0) return elementwise({}, update_sgd);
      return elementwise({TensorKind::kMomentum}, update_sgd);
    case OptimizerKind::kLion:
      return elementwise({TensorKind::kExpAvg}, update_lion);
    case OptimizerKind::kAdagrad:
      return elementwise({TensorKind::kSum}, update_adagrad);
    case OptimizerKind::kLamb:
      return std::make_unique<Lamb>(plan, states, axes);
    case OptimizerKind::kAdafactor:
      return std::make_unique<Adafactor>(plan, states, axes);
    case OptimizerKind::kMuon:
      return std::make_unique<Muon>(plan, states, axes);
  }
  fail(ErrorKind::kInternal, "optimizer kind ", static_cast<int>(plan.optimizer.kind));
}

}  // namespace intarsia::optim
