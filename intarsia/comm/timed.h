// Says how long each operation of a communicator took, and how much of that somebody waited.
#pragma once

#include <functional>
#include <string>

#include "intarsia/comm/intercept.h"

namespace intarsia::comm {

struct TimedOp {
  Op op = Op::kBarrier;
  Tag tag;
  std::int64_t bytes = 0;     // of the tensor that holds the pieces of all ranks
  int ranks = 1;              // of the communicator
  double begin = 0, end = 0;  // steady-clock seconds: from the call to the end of its wait()
  double waited = 0;          // of them inside the call and inside wait(): what was not hidden
};

// The inner communicator and what `sink` refers to must outlive it and its operations. `sink` is called on the rank's
// thread when an operation is over; one that is never waited for is not told.
class TimedCommunicator final : public InterceptingCommunicator {
 public:
  using Sink = std::function<void(const TimedOp&)>;
  TimedCommunicator(Communicator& inner, Sink sink);

 private:
  void before(Op op, std::int64_t bytes, const Tag& tag) override;
  std::unique_ptr<Work> after(std::unique_ptr<Work> work) override;
  void after_barrier() override;

  Sink sink_;
  TimedOp next_;  // of the call that is under way
};

// Seconds of the clock that TimedOp uses.
double steady_seconds();

}  // namespace intarsia::comm
