#include "intarsia/launch/local_ranks.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"

namespace intarsia::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExitRankDied = 4;
constexpr int kExitInterrupted = 130;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

// Processes that the kernel has killed for memory in this control group, ever; nothing where it does not say.
std::optional<long> out_of_memory_kills() {
  std::ifstream events("/sys/fs/cgroup/memory.events");
  for (std::string key, value; events >> key >> value;) {
    if (key == "oom_kill") return std::strtol(value.c_str(), nullptr, 10);
  }
  return std::nullopt;
}

struct Rank {
  pid_t pid = -1;
  bool running = true;
};

struct Ended {
  int rank;
  pid_t pid;
  int status;
  // The smaller, the nearer to the cause: a signal, an error of the rank itself, an error about another rank.
  int distance() const { return WIFSIGNALED(status) ? 0 : WEXITSTATUS(status) == kExitRankDied ? 2 : 1; }
};

[[noreturn]] void be_rank(int rank, pid_t parent, const sigset_t& mask, const std::vector<int>& cores,
                          const std::function<int(int)>& body) {
  // A group of its own: a terminal's Ctrl-C reaches the rank only through the parent, once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitRankDied);  // it died before the line above
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (!cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cores) CPU_SET(cpu, &set);
    ::sched_setaffinity(0, sizeof(set), &set);
  }
  int code = 1;
  try {
    code = body(rank);
  } catch (const Error& error) {
    log_error(concat("rank ", rank, ": ", error.what()));
    code = exit_code(error.kind());
  } catch (const std::exception& error) {
    log_error(concat("rank ", rank, ": ", error.what()));
  }
  std::fflush(nullptr);
  // Not exit(): destructors of the parent's static objects are the parent's.
  ::_exit(code);
}

class Watch {
 public:
  Watch(const LocalRanksOptions& options, std::vector<Rank> ranks)
      : options_(options), ranks_(std::move(ranks)), oom_before_(out_of_memory_kills()) {}

  int until_all_ended(const sigset_t& signals) {
    while (true) {
      collect();
      const bool any = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
      if (!any) break;
      end_the_others();
      timespec tick{0, 20'000'000};
      if (!first_failure_) tick = {0, 500'000'000};
      const int signal = ::sigtimedwait(&signals, nullptr, &tick);
      if (signal == SIGINT || signal == SIGTERM) pass_on(signal);
    }
    return conclude();
  }

 private:
  void collect() {
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      Rank& rank = ranks_[index];
      int status = 0;
      if (!rank.running || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.running = false;
      const bool stopped = WIFEXITED(status) && WEXITSTATUS(status) == kExitStopped;
      any_stopped_ = any_stopped_ || stopped;
      if (stopped || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
      // What dies of the signal that we sent is no cause.
      if (terminated_ || killed_) continue;
      if (passed_on_ != 0 && WIFSIGNALED(status) && WTERMSIG(status) == passed_on_) {
        died_of_request_ = true;
        continue;
      }
      failures_.push_back({static_cast<int>(index), rank.pid, status});
      if (!first_failure_) first_failure_ = Clock::now();
    }
  }

  void end_the_others() {
    if (!first_failure_) return;
    const auto since = Clock::now() - *first_failure_;
    if (!terminated_ && since >= options_.settle) {
      terminated_ = true;
      signal_all(SIGTERM);
    }
    if (!killed_ && since >= options_.settle + options_.grace) {
      killed_ = true;
      signal_all(SIGKILL);
    }
  }

  void pass_on(int signal) {
    if (passed_on_ == 0) {
      passed_on_ = signal;
      signal_all(signal);
      return;
    }
    second_signal_ = true;
    killed_ = true;
    signal_all(SIGKILL);
  }

  void signal_all(int signal) {
    for (const Rank& rank : ranks_) {
      // The rank's group, should it have started programs. It may not have made it yet: then the rank alone.
      if (rank.running && ::kill(-rank.pid, signal) != 0) ::kill(rank.pid, signal);
    }
  }

  int conclude() const {
    if (second_signal_) return kExitInterrupted;
    if (!failures_.empty()) {
      const Ended& cause = *std::min_element(failures_.begin(), failures_.end(), [](const Ended& a, const Ended& b) {
        return a.distance() < b.distance();  // of equals the first
      });
      // A rank that a request to stop ended while the ranks still waited for each other takes the others with it.
      if (died_of_request_ && cause.distance() == 2) return 128 + passed_on_;
      report(cause);
      return WIFSIGNALED(cause.status) ? kExitRankDied : WEXITSTATUS(cause.status);
    }
    if (died_of_request_) return 128 + passed_on_;
    return any_stopped_ ? kExitStopped : 0;
  }

  void report(const Ended& cause) const {
    const std::string who =
        concat("rank ", cause.rank, " of ", ranks_.size(), " (host ", host_name(), ", pid ", cause.pid, ")");
    if (!WIFSIGNALED(cause.status)) {
      if (options_.ranks_report && WEXITSTATUS(cause.status) != kExitRankDied) return;
      log_error(concat(who, " ended with code ", WEXITSTATUS(cause.status), "; the other ranks were stopped"));
      return;
    }
    const int signal = WTERMSIG(cause.status);
    std::string hint;
    if (signal == SIGKILL) {
      const auto oom_now = out_of_memory_kills();
      hint = oom_now && oom_before_ && *oom_now > *oom_before_
                 ? ": the kernel killed it because the host's memory (or this control group's) was full"
                 : ": somebody killed it, or the kernel did because the host's memory was full (see dmesg)";
    }
    log_error(concat(who, " was killed by signal ", signal, " (", ::strsignal(signal), ")", hint,
                     "; the other ranks were stopped"));
  }

  const LocalRanksOptions options_;
  std::vector<Rank> ranks_;
  const std::optional<long> oom_before_;
  std::vector<Ended> failures_;
  std::optional<Clock::time_point> first_failure_;
  bool terminated_ = false;
  bool killed_ = false;
  bool second_signal_ = false;
  bool any_stopped_ = false;
  bool died_of_request_ = false;
  int passed_on_ = 0;
};

}  // namespace

int run_local_ranks(const LocalRanksOptions& options, const std::function<int(int rank)>& body) {
  const auto cores = divide_cores(read_cores(), options.ranks, options.bind);
  // Blocked signals wait until the watch asks for them; the ranks get the caller's mask back.
  sigset_t signals;
  sigset_t before;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  std::fflush(nullptr);
  std::vector<Rank> ranks(static_cast<std::size_t>(options.ranks));
  const pid_t parent = ::getpid();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].pid = ::fork();
    if (ranks[rank].pid == 0) be_rank(static_cast<int>(rank), parent, before, cores[rank], body);
    if (ranks[rank].pid < 0) {
      const int error = errno;
      for (std::size_t started = 0; started < rank; ++started) {
        ::kill(ranks[started].pid, SIGKILL);
        ::waitpid(ranks[started].pid, nullptr, 0);
      }
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      fail(ErrorKind::kMemory, "rank ", rank, " of ", options.ranks, " cannot be started: ", std::strerror(error),
           "; look at 'ulimit -u' and free memory");
    }
  }
  const int code = Watch(options, std::move(ranks)).until_all_ended(signals);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace intarsia::launch
