#include "intarsia/cli/commands/stop_signal.h"

#include <atomic>
#include <csignal>

namespace intarsia::cli {
namespace {

std::atomic<bool> stopped{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

void on_signal(int) { stopped = true; }

void set_handler(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  stopped = false;
  // SA_RESETHAND: the second signal finds the default again. SA_RESTART: no read or write fails half way.
  set_handler(on_signal, static_cast<int>(SA_RESETHAND) | SA_RESTART);
}

StopSignal::~StopSignal() { set_handler(SIG_DFL, 0); }

void StopSignal::check() {
  if (stopped) throw Stopped{};
}

}  // namespace intarsia::cli
