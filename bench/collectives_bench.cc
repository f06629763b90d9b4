// Collectives over shared memory against c10d's gloo between the same two processes, in turn, and against the bound
// that memory traffic sets: both ranks copying at once what the collective at least has to read and write. Usage:
// collectives_bench [ROUNDS] [RANKS]     Default: 7 2
#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "intarsia/comm/backends/region_communicator.h"

namespace intarsia::bench {
namespace {

using comm::Communicator;
constexpr int kSystems = 4;  // ours over tensors in shared memory, ours over any tensors, gloo, plain copies

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Row {
  const char* name;
  // Bytes that each rank has to move at least, over the bytes of the whole tensor, reads and writes together.
  std::function<double(int ranks)> traffic;
};

const Row kRows[] = {
    {"reduce-scatter", [](int n) { return 1.0 + 1.0 / n; }},
    {"all-gather", [](int) { return 2.0; }},
    // Reduced in parts, then the other parts copied.
    {"all-reduce", [](int n) { return 1.0 + 1.0 / n + 2.0 * (n - 1) / n; }},
};

struct Buffers {
  at::Tensor whole, piece, other;  // [n], [n / ranks], [n] fp32
};

Buffers plain_buffers(std::int64_t n, int ranks) { return {at::ones({n}), at::ones({n / ranks}), at::ones({n})}; }

void ours(Communicator& comm, int row, const Buffers& b) {
  if (row == 0) comm.reduce_scatter(b.piece, b.whole, {"", "bench"})->wait();
  if (row == 1) comm.all_gather(b.whole, b.piece, {"", "bench"})->wait();
  if (row == 2) comm.all_reduce(b.whole, comm::ReduceOp::kSum, {"", "bench"})->wait();
}

void gloo(c10d::ProcessGroupGloo& group, int row, Buffers& b) {
  if (row == 0) group._reduce_scatter_base(b.piece, b.whole)->wait();
  if (row == 1) group._allgather_base(b.whole, b.piece)->wait();
  if (row == 2) {
    std::vector<at::Tensor> tensors{b.whole};
    group.allreduce(tensors)->wait();
  }
}

void run_rank(int rank, int ranks, int rounds, const std::shared_ptr<comm::SharedRegion>& region,
              const std::string& store_path) {
  at::set_num_threads(1);
  comm::RegionCommunicator comm(region, rank);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  c10d::ProcessGroupGloo group(c10::make_intrusive<c10d::FileStore>(store_path, ranks), rank, ranks, options);
  if (rank == 0)
    std::printf(
        "| collective | bytes | ours us, shared | ours us, any memory | gloo us | gloo / ours, shared (lowest to "
        "highest) | gloo / ours, any | traffic bound / ours, shared |\n|---|--:|--:|--:|--:|--:|--:|--:|\n");
  for (int row = 0; row < 3; ++row) {
    for (const std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{64} << 20}) {
      const std::int64_t n = bytes / 4;
      const int repeat = bytes <= (64 << 10) ? 200 : bytes <= (1 << 20) ? 40 : 1;
      const auto heap_whole = comm.allocate_shared(bytes), heap_piece = comm.allocate_shared(bytes / ranks);
      Buffers any = plain_buffers(n, ranks), shared = any;
      shared.whole = at::from_blob(heap_whole->data(), {n}).fill_(1);
      shared.piece = at::from_blob(heap_piece->data(), {n / ranks}).fill_(1);
      const auto copied = static_cast<std::size_t>(static_cast<double>(bytes) * kRows[row].traffic(ranks) / 2);
      std::vector<char> from(copied, 1), to(copied, 1);
      std::vector<double> seconds[kSystems];
      for (int round = 0; round <= rounds; ++round) {
        for (int turn = 0; turn < kSystems; ++turn) {
          const int system = round % 2 == 0 ? turn : kSystems - 1 - turn;
          comm.barrier({"", "start"});
          const double start = now();
          for (int i = 0; i < repeat; ++i) {
            if (system == 0) ours(comm, row, shared);
            if (system == 1) ours(comm, row, any);
            if (system == 2) gloo(group, row, any);
            if (system == 3) {
              std::memcpy(to.data(), from.data(), copied);
              asm volatile("" : : "r"(to.data()) : "memory");
            }
          }
          if (system == 3) comm.barrier({"", "end"});
          if (round > 0) seconds[system].push_back((now() - start) / repeat);
        }
      }
      if (rank != 0) continue;
      const auto ratios = [&](int over, int under) {
        std::vector<double> out;
        for (std::size_t i = 0; i < seconds[over].size(); ++i) out.push_back(seconds[over][i] / seconds[under][i]);
        std::ranges::sort(out);
        return out;
      };
      const auto against_gloo = ratios(2, 0), any_against_gloo = ratios(2, 1), against_bound = ratios(3, 0);
      std::printf("| %s | %ld KiB | %.1f | %.1f | %.1f | %.1f (%.1f to %.1f) | %.1f | %.2f |\n", kRows[row].name,
                  static_cast<long>(bytes >> 10), 1e6 * median(seconds[0]), 1e6 * median(seconds[1]),
                  1e6 * median(seconds[2]), median(against_gloo), against_gloo.front(), against_gloo.back(),
                  median(any_against_gloo), median(against_bound));
      std::fflush(stdout);
    }
  }
  // Mapped parameters move nothing: a gather of any size is one meeting.
  std::vector<double> meetings;
  for (int round = 0; round < rounds; ++round) {
    const double start = now();
    for (int i = 0; i < 1000; ++i) comm.barrier({"", "gather"});
    meetings.push_back((now() - start) / 1000);
  }
  if (rank == 0)
    std::printf("\nmapped all-gather (a meeting of all ranks), any size: %.2f us\n", 1e6 * median(meetings));
  std::fflush(stdout);
}

int run(int rounds, int ranks) {
  comm::RegionOptions options;
  options.ranks = ranks;
  options.timeout_seconds = 60;
  options.heap_limit_bytes = std::int64_t{4} << 30;
  const auto region = comm::SharedRegion::create(options);
  std::string store = (std::filesystem::temp_directory_path() / "collectives_bench_XXXXXX").string();
  ::close(::mkstemp(store.data()));
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    run_rank(rank, ranks, rounds, region, store);
    ::_exit(0);
  }
  int failed = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed += status != 0 ? 1 : 0;
  }
  ::unlink(store.c_str());
  return failed;
}

}  // namespace
}  // namespace intarsia::bench

int main(int argc, char** argv) {
  return intarsia::bench::run(argc > 1 ? std::atoi(argv[1]) : 7, argc > 2 ? std::atoi(argv[2]) : 2);
}
