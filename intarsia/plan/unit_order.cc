#include "intarsia/plan/unit_order.h"

namespace intarsia::plan {

int UnitOrder::follow(int unit) {
  if (lost_ || at_ == last_.size() || last_[at_] != unit) {
    // Back at the start without an end: the pass before this one had no backward.
    const bool again = !last_.empty() && last_.front() == unit;
    if (again) now_.clear();
    at_ = 0;
    lost_ = !again;
  }
  now_.push_back(unit);
  if (!lost_) ++at_;
  return next();
}

int UnitOrder::next() const { return lost_ || at_ == 0 || at_ == last_.size() ? -1 : last_[at_]; }

void UnitOrder::end() {
  last_ = std::move(now_);
  now_.clear();
  at_ = 0;
  lost_ = false;
}

}  // namespace intarsia::plan
