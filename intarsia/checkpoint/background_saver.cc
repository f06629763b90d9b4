#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <thread>

#include "intarsia/base/error.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/checkpoint/save_phases.h"

namespace intarsia::checkpoint {
namespace {

// One local part in a thread of its own.
class Writer {
 public:
  explicit Writer(SavePhases& phases) : phases_(phases) { begin(); }
  ~Writer() {
    if (thread_.joinable()) thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void begin() {
    finished_ = false;
    failure_ = nullptr;
    // Signals are for the threads that look at them.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] {
      try {
        phases_.run_local();
      } catch (...) {
        failure_ = std::current_exception();
      }
      finished_ = true;
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  bool finished() const { return finished_; }
  void join() {
    thread_.join();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  SavePhases& phases_;
  std::thread thread_;
  std::atomic<bool> finished_{false};
  std::exception_ptr failure_;
};

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Replaces the values by copies in `buffer`, which grows if it must.
void copy_values(std::vector<LocalPiece>& pieces, at::Tensor& buffer) {
  std::int64_t bytes = 0;
  for (const LocalPiece& piece : pieces) bytes += aligned(static_cast<std::int64_t>(piece.values.nbytes()));
  if (!buffer.defined() || buffer.numel() < bytes) {
    buffer = at::Tensor();  // the old one first
    buffer = at::empty({bytes}, at::kByte);
  }
  std::int64_t at = 0;
  for (LocalPiece& piece : pieces) {
    const auto size = static_cast<std::int64_t>(piece.values.nbytes());
    const at::Tensor copy = buffer.narrow(0, at, size).view(piece.values.scalar_type());
    copy.copy_(piece.values);
    piece.values = copy;
    at += aligned(size);
  }
}

}  // namespace

class BackgroundSaver::Job {
 public:
  Job(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer, at::Tensor& buffer)
      : step_(request.progress.step), axis_(engine.world()), phases_(request, engine, optimizer) {
    copy_values(phases_.pieces(), buffer);
    writer_.emplace(phases_);
  }

  std::int64_t step() const { return step_; }

  // True: all is over.
  bool poll() {
    if (!all_finished()) return false;
    if (!advance_together(axis_, phases_, [&] { writer_->join(); })) return true;
    if (phases_.done()) return true;
    writer_->begin();
    return false;
  }
  Saved saved() const { return phases_.saved(); }

 private:
  bool all_finished() {
    const at::Tensor running = at::full({1}, writer_->finished() ? 0 : 1, at::kLong);
    axis_.all_reduce(running, comm::ReduceOp::kMax, {"", "checkpoint progress"})->wait();
    return running.const_data_ptr<std::int64_t>()[0] == 0;
  }

  const std::int64_t step_;
  comm::Communicator& axis_;
  SavePhases phases_;
  std::optional<Writer> writer_;
};

BackgroundSaver::BackgroundSaver(shard::Engine& engine, optim::Optimizer& optimizer)
    : engine_(engine), optimizer_(optimizer) {}

BackgroundSaver::~BackgroundSaver() = default;

std::int64_t BackgroundSaver::step() const { return job_ == nullptr ? -1 : job_->step(); }

void BackgroundSaver::start(const SaveRequest& request) {
  INTARSIA_INVARIANT(!busy(), "a second save was started while that of step ", step(), " was under way");
  const at::NoGradGuard no_grad;
  job_ = std::make_unique<Job>(request, engine_, optimizer_, buffer_);
}

std::optional<Saved> BackgroundSaver::poll() {
  try {
    if (!job_->poll()) return std::nullopt;
  } catch (...) {
    job_.reset();
    throw;
  }
  const Saved saved = job_->saved();
  job_.reset();
  return saved;
}

Saved BackgroundSaver::wait() {
  for (;;) {
    if (const std::optional<Saved> saved = poll()) return *saved;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace intarsia::checkpoint
