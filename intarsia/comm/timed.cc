#include "intarsia/comm/timed.h"

#include <chrono>
#include <utility>

namespace intarsia::comm {
namespace {

class TimedWork final : public Work {
 public:
  TimedWork(std::unique_ptr<Work> inner, TimedOp op, const TimedCommunicator::Sink& sink)
      : inner_(std::move(inner)), op_(std::move(op)), sink_(sink) {}
  void wait() override {
    const double begin = steady_seconds();
    inner_->wait();
    op_.end = steady_seconds();
    op_.waited += op_.end - begin;
    if (!std::exchange(told_, true)) sink_(op_);
  }

 private:
  std::unique_ptr<Work> inner_;
  TimedOp op_;
  const TimedCommunicator::Sink& sink_;
  bool told_ = false;
};

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TimedCommunicator::TimedCommunicator(Communicator& inner, Sink sink)
    : InterceptingCommunicator(inner), sink_(std::move(sink)) {}

void TimedCommunicator::before(Op op, std::int64_t bytes, const Tag& tag) {
  next_ = {.op = op, .tag = tag, .bytes = bytes, .ranks = size(), .begin = steady_seconds()};
}

std::unique_ptr<Work> TimedCommunicator::after(std::unique_ptr<Work> work) {
  next_.waited = steady_seconds() - next_.begin;
  return std::make_unique<TimedWork>(std::move(work), next_, sink_);
}

void TimedCommunicator::after_barrier() {
  next_.end = steady_seconds();
  next_.waited = next_.end - next_.begin;
  sink_(next_);
}

}  // namespace intarsia::comm
