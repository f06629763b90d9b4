// In which order units are made whole: what was last time is what comes next.
#pragma once

#include <cstddef>
#include <vector>

namespace intarsia::plan {

// A micro-step that leaves the order of the one before it has no prediction until it ends; its own order is the next
// one's. A pass that begins like it (evaluation after training) is predicted as far as it goes.
// Source: ZeRO-Infinity (arXiv 2104.07857), section 6.2, a trace of the last iteration.
class UnitOrder {
 public:
  // `unit` is made whole now. Returns next().
  int follow(int unit);
  // The unit that is made whole after the latest one; -1: unknown.
  int next() const;
  // The micro-step is over.
  void end();

 private:
  std::vector<int> last_;  // of the last micro-step
  std::vector<int> now_;   // of this one, so far
  std::size_t at_ = 0;     // how much of last_ has come
  bool lost_ = false;
};

}  // namespace intarsia::plan
