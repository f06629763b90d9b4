// Brings the pieces of a matrix together at its owner, and what the owner makes of them back.
#pragma once

#include <functional>
#include <vector>

#include "intarsia/optim/optimizer.h"

namespace intarsia::optim {

struct Matrix {
  std::size_t flat = 0;
  std::size_t slot = 0;
  int param = 0;
  int owner = 0;  // rank of the axis; with replicated state each rank does every matrix
};

// Matrices are done in rounds, one of each owner, by falling size, so that owners work at the same time.
//
// Traffic: each element travels twice as fp32, to its owner and back, unless the owner has it: 8 bytes at most.
// Memory: of one round, this rank's pieces in fp32, and the largest matrix that it owns, whole, in fp32; what
// `transform` needs comes on top. Nothing travels where the state is replicated or there is one rank.
class MatrixExchange {
 public:
  MatrixExchange(const plan::RunPlan& plan, comm::Communicator& axis, bool sharded);

  struct Rule {
    // Fills this rank's part [elements] of what is gathered; called on every rank that has some.
    std::function<void(const Matrix& matrix, plan::Range elements, const at::Tensor& part)> prepare;
    // Replaces the gathered matrix, fp32, of the parameter's shape; called on the owner.
    std::function<void(const Matrix& matrix, const at::Tensor& whole)> transform;
    // Takes this rank's part of the result.
    std::function<void(const Matrix& matrix, plan::Range elements, const at::Tensor& part)> apply;
  };
  // Collective over the axis.
  void run(const Rule& rule);

 private:
  void run_round(const std::vector<Matrix>& round, const Rule& rule);

  const plan::RunPlan& plan_;
  comm::Communicator& axis_;
  bool sharded_;
  std::vector<std::vector<Matrix>> rounds_;
};

}  // namespace intarsia::optim
