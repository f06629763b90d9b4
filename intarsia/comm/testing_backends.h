// For tests: the same function on ranks of every backend, and what became of each rank.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "intarsia/comm/backends/gloo.h"
#include "intarsia/comm/backends/listen.h"
#include "intarsia/comm/backends/region_communicator.h"

namespace intarsia::comm {

enum class TestBackend { kThreads, kThreadsCopy, kShm, kShmCopy, kGloo };

inline const char* name_of(TestBackend backend) {
  constexpr const char* kNames[] = {"threads", "threads_copy", "shm", "shm_copy", "gloo"};
  return kNames[static_cast<int>(backend)];
}

struct RankOutcome {
  bool threw = false;
  bool comm_error = false;  // kComm
  bool by_peer = false;     // AbortedByPeer
  bool killed = false;
  int signal = 0;       // that ended it
  bool failed = false;  // an EXPECT of the rank
  char message[4096] = {};
  double seconds = 0;
};

using RankBody = std::function<void(Communicator&)>;

inline void run_rank(Communicator& comm, const RankBody& body, RankOutcome& outcome) {
  at::set_num_threads(1);
  const auto start = std::chrono::steady_clock::now();
  const auto note = [&](const std::exception& error) {
    outcome.threw = true;
    std::snprintf(outcome.message, sizeof(outcome.message), "%s", error.what());
  };
  try {
    body(comm);
  } catch (const AbortedByPeer& error) {
    note(error);
    outcome.comm_error = outcome.by_peer = true;
  } catch (const Error& error) {
    note(error);
    outcome.comm_error = error.kind() == ErrorKind::kComm;
  } catch (const std::exception& error) {
    note(error);
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline std::vector<RankOutcome> run_threads(const std::shared_ptr<SharedRegion>& region, const RankBody& body) {
  const int ranks = region->options().ranks;
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RegionCommunicator comm(region, rank);
      run_rank(comm, body, outcomes[static_cast<std::size_t>(rank)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Forks the ranks; `join` makes the communicator in each.
inline std::vector<RankOutcome> run_processes(int ranks,
                                              const std::function<std::unique_ptr<Communicator>(int rank)>& join,
                                              const RankBody& body) {
  const std::size_t bytes = sizeof(RankOutcome) * static_cast<std::size_t>(ranks);
  auto* shared =
      static_cast<RankOutcome*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    ::alarm(60);  // a hang is a failure, not a hang of the suite
    try {
      const std::unique_ptr<Communicator> comm = join(rank);
      run_rank(*comm, body, shared[rank]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " cannot join: " << error.what();
    }
    shared[rank].failed = testing::Test::HasFailure();
    std::fflush(nullptr);
    ::_exit(0);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ::waitpid(pids[static_cast<std::size_t>(rank)], &status, 0);
    shared[rank].killed = WIFSIGNALED(status);
    shared[rank].signal = shared[rank].killed ? WTERMSIG(status) : 0;
  }
  const std::vector<RankOutcome> outcomes(shared, shared + ranks);
  ::munmap(shared, bytes);
  return outcomes;
}

inline std::vector<RankOutcome> run_backend(TestBackend backend, int ranks, double timeout_seconds,
                                            const RankBody& body) {
  if (backend == TestBackend::kGloo) {
    const Listener listener = listen_on("127.0.0.1", 0);
    auto outcomes = run_processes(
        ranks,
        [&](int rank) {
          GlooOptions options;
          options.rank = rank;
          options.size = ranks;
          options.port = listener.port;
          options.listen_fd = rank == 0 ? ::dup(listener.fd) : -1;
          options.timeout_seconds = timeout_seconds;
          return make_gloo_communicator(options);
        },
        body);
    ::close(listener.fd);
    return outcomes;
  }
  RegionOptions options;
  options.ranks = ranks;
  options.process_ranks = backend == TestBackend::kShm || backend == TestBackend::kShmCopy;
  options.force_copy = backend == TestBackend::kThreadsCopy || backend == TestBackend::kShmCopy;
  options.timeout_seconds = timeout_seconds;
  options.heap_limit_bytes = std::int64_t{256} << 20;
  const auto region = SharedRegion::create(options);
  if (!options.process_ranks) return run_threads(region, body);
  return run_processes(
      ranks, [&](int rank) { return std::make_unique<RegionCommunicator>(region, rank); }, body);
}

}  // namespace intarsia::comm
