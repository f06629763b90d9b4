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

std::unique_ptr<Work> TimedCommunicator::watch(const std::function<std::unique_ptr<Work>()>& start) {
  std::unique_ptr<Work> work = start();
  next_.waited = steady_seconds() - next_.begin;
  return std::make_unique<TimedWork>(std::move(work), next_, sink_);
}

std::unique_ptr<Work> TimedCommunicator::all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::all_gather(out, in, tag); });
}
std::unique_ptr<Work> TimedCommunicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::reduce_scatter(out, in, tag); });
}
std::unique_ptr<Work> TimedCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::all_reduce(tensor, op, tag); });
}
std::unique_ptr<Work> TimedCommunicator::broadcast(const at::Tensor& tensor, int root, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::broadcast(tensor, root, tag); });
}
std::unique_ptr<Work> TimedCommunicator::all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::all_to_all(out, in, tag); });
}
std::unique_ptr<Work> TimedCommunicator::send(const at::Tensor& tensor, int to, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::send(tensor, to, tag); });
}
std::unique_ptr<Work> TimedCommunicator::recv(const at::Tensor& tensor, int from, const Tag& tag) {
  return watch([&] { return InterceptingCommunicator::recv(tensor, from, tag); });
}

void TimedCommunicator::barrier(const Tag& tag) {
  InterceptingCommunicator::barrier(tag);
  next_.end = steady_seconds();
  next_.waited = next_.end - next_.begin;
  sink_(next_);
}

}  // namespace intarsia::comm
