// The ranks of one host: forked from this process, watched, ended together.
#pragma once

#include <chrono>
#include <functional>

#include "intarsia/launch/bind.h"

namespace intarsia::launch {

struct LocalRanksOptions {
  int ranks = 1;
  Bind bind = Bind::kCores;
  // After the first failure: how long other failures may still come in, so that the cause is told from what it caused;
  // then the others get SIGTERM, and after the grace SIGKILL. Together below 2 s.
  std::chrono::milliseconds settle{300};
  std::chrono::milliseconds grace{1000};
  // The body says itself why it ends with a code: then only a death by a signal and code 4 are told here.
  bool ranks_report = false;
};

// Exit code of a rank that stopped on request and saved; it ends no other rank.
inline constexpr int kExitStopped = 75;

// Forks `ranks` processes, runs body(rank) in each with its share of the cores, and waits for all. body's value is the
// rank's exit code; what it throws is printed and becomes the exit code of its kind. Ranks die with this process.
// SIGINT and SIGTERM are passed on to the ranks, which may finish their step; the second one kills them.
//
// When a rank is killed by a signal or ends with another code than 0 and 75, the others are ended within 2 s, and one
// message names rank, host, pid and signal or code of the first cause. Returns 0; 75 if a rank stopped on request; 4 if
// a signal killed a rank; 130 after a second signal; else the exit code of the rank that failed first. Failures that a
// failure of another rank brings about (exit code 4) count only when there is no other.
//
// The caller must have no other threads: a fork copies only the calling one.
// Errors: kUsage for ranks below 1 or above 1024; kMemory when the system refuses a process.
int run_local_ranks(const LocalRanksOptions& options, const std::function<int(int rank)>& body);

}  // namespace intarsia::launch
