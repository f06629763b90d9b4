// Adafactor: the second moment of a matrix as one number for each row and one for each column.
#pragma once

#include "intarsia/optim/matrix_exchange.h"
#include "intarsia/optim/param_sums.h"

namespace intarsia::optim {

// As torch.optim.Adafactor; k is the update's number, b = k^beta2_decay, rms the root mean square over the parameter:
//   alpha = max(eps2, rms(p)) min(lr, 1 / sqrt(k)),  p = p (1 - lr weight_decay) - alpha u / max(1, rms(u) / d)
//   u = g / sqrt(max(v, eps^2));  vectors: v = (1 - b) v + b g^2
//   matrices: r and c likewise from the means of g^2 along rows and columns, v = r c / max(mean(r), eps)
// over the last two dimensions where there are more. Source: Shazeer and Stern, arXiv 1804.04235, algorithms 4 to 6.
// Traffic and memory: those of MatrixExchange, plus 16 bytes a block of 1,024 elements; the owner needs its matrix
// twice. r and c rest with the owner.
class Adafactor final : public Optimizer {
 public:
  Adafactor(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, const comm::DataAxes& axes)
      : Optimizer(plan, states, axes), sums_(plan, axis(), sharded()), exchange_(plan, axis(), sharded()) {}

 private:
  void update() override;
  void transform(const Matrix& matrix, const at::Tensor& whole, double fresh) const;

  ParamSums sums_;
  MatrixExchange exchange_;
};

}  // namespace intarsia::optim
