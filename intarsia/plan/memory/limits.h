// How much memory this host lets a run have, and whether a run fits.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/plan/memory/rank_memory.h"

namespace intarsia::plan {

// The tightest of: the machine's memory, and the limits of this process' control group (v1 or v2) and those above it.
// Units: bytes.
struct MemoryLimit {
  std::int64_t bytes = 0;  // 0: unknown
  std::string from;        // "the machine", "control group /sys/fs/cgroup/..."
};

// `root`: where proc and sys are; "" on a real system.
MemoryLimit read_memory_limit(const std::string& root = "");

// What the processes of libexec/intarsia-rank hold beside what the meter counts, per rank and once a host: code, heap,
// and scratch of matrix libraries. On top of it the heap that ranks share keeps a part of the reduction's buffers, and
// the C library's heap a part of the activations' bytes, more where they are recomputed among those that stay.
// Measured: bench/plan_accuracy.py, docs/plan.md.
inline constexpr std::int64_t kRankBaseBytes = 15LL << 20;
inline constexpr std::int64_t kHostBaseBytes = 64LL << 20;
inline constexpr double kKeptOfReduction = 1. / 3;
inline constexpr double kKeptOfActivations = 0.25;
inline constexpr double kKeptOfRecomputed = 0.65;

// A run's need on one host with `local_ranks` of its ranks, by the highest of all phases.
struct HostNeed {
  std::int64_t rank_peak = 0;  // by the meter
  std::int64_t host = 0;       // of all local ranks, base included
};
HostNeed host_need(const StepReplay& replay, int local_ranks);

// Nothing when `need` is within the limit or the limit is unknown, else one sentence: predicted, limit, what to do.
std::string does_not_fit(const HostNeed& need, const MemoryLimit& limit, const RunPlan& plan);

}  // namespace intarsia::plan
