// Which evaluation of a run was the best, and how long ago.
#pragma once

#include <cstdint>
#include <limits>

namespace intarsia::train {

class EvaluationHistory {
 public:
  // Returns whether `loss` is lower than all before. A loss that is not a number never is.
  bool add(double loss) {
    const bool best = loss < best_;
    if (best) best_ = loss;
    since_best_ = best ? 0 : since_best_ + 1;
    return best;
  }
  // Evaluations in a row that were not the best.
  std::int64_t since_best() const { return since_best_; }
  double best() const { return best_; }

 private:
  double best_ = std::numeric_limits<double>::infinity();
  std::int64_t since_best_ = 0;
};

}  // namespace intarsia::train
