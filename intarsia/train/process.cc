#include "intarsia/train/process.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace intarsia::train {
namespace {

volatile sig_atomic_t stop_signals = 0;

void on_stop(int) {
  stop_signals = stop_signals + 1;
  if (stop_signals > 1) ::_exit(130);
}

}  // namespace

std::int64_t pss_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != "Pss:") continue;
    std::int64_t kib = 0;
    file >> kib;
    return kib * 1024;
  }
  return 0;
}

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_stop;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return stop_signals > 0; }

}  // namespace intarsia::train
