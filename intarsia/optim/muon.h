// Muon: momentum whose singular values are brought near 1, for matrices; AdamW for everything else.
#pragma once

#include "intarsia/optim/matrix_exchange.h"

namespace intarsia::optim {

// Matrices (plan::updates_matrix; more than two dimensions: the first against the rest), as torch.optim.Muon:
//   m = momentum m + (1 - momentum) g;  x = m, or with nesterov momentum m + (1 - momentum) g
//   p = p (1 - lr weight_decay) - lr sqrt(max(1, rows / columns)) newton_schulz(x)
// The iteration runs in fp32 (the references: bf16). Other parameters: AdamW at the same rate.
// Source: Jordan et al., https://kellerjordan.github.io/posts/muon/ (2024).
// Traffic and memory: those of MatrixExchange; the owner needs its matrix twice more, and twice the square of its
// shorter side. Momentum is cut as masters are.
class Muon final : public Optimizer {
 public:
  Muon(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, const comm::DataAxes& axes)
      : Optimizer(plan, states, axes), exchange_(plan, axis(), sharded()) {}

 private:
  void update() override;

  MatrixExchange exchange_;
};

// Five steps of x = a x + (b (x x') + c (x x')^2) x with (a, b, c) = (3.4445, -4.7750, 2.0315) from x / max(|x|, 1e-7)
// on, for a matrix [rows, columns] in fp32: its singular vectors with singular values of about 1.
at::Tensor newton_schulz(const at::Tensor& matrix);

}  // namespace intarsia::optim
